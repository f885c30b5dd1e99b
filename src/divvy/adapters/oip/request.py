"""Builds requests of the protocol and reads its answers; no I/O here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from divvy.errors import EngineError, InputError
from divvy.units import parse_json

_ZERO: Final[Mapping[str, Any]] = {
    "BOOL": False,
    "BYTES": "",
    **dict.fromkeys(("FP16", "FP32", "FP64", "BF16"), 0.0),
    **dict.fromkeys(
        ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
        0,
    ),
}

#: Values of one input: more would not be a request that a server takes.
_MOST_VALUES: Final = 50_000_000


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input of a model: its name, datatype and shape; -1 is a free dimension, the first one the batch."""

    name: str
    datatype: str
    shape: tuple[int, ...]


def read_inputs(text: str) -> tuple[Tensor, ...]:
    """Return the inputs in a model's metadata (the answer to ``GET /v2/models/M``).

    Raises:
        EngineError: If the answer is no such metadata.
    """
    try:
        document = parse_json(text)
        return tuple(
            Tensor(str(one["name"]), str(one["datatype"]), tuple(int(size) for size in one["shape"]))
            for one in document["inputs"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise EngineError.one(
            "oip-metadata", f"the server's metadata has no usable inputs: {error}"
        ) from error


def build_infer(inputs: Sequence[Tensor], batch: int, free: int = 1) -> dict[str, Any]:
    """Return the body of ``POST /v2/models/M/infer`` with zeros for every input.

    Args:
        inputs: What the model wants.
        batch: Items: the first dimension, where it is free.
        free: Size of every other free dimension.

    Raises:
        InputError: If the model cannot take the batch, or has a datatype that is not known.
    """
    tensors = []
    for one in inputs:
        if one.datatype not in _ZERO:
            raise InputError.one(
                "oip-datatype", f"input {one.name} is {one.datatype}", allowed=", ".join(sorted(_ZERO))
            )
        if not one.shape or (one.shape[0] not in {-1, batch}):
            raise InputError.one(
                "oip-batch",
                f"input {one.name} has shape {list(one.shape)}: the model does not take batches of {batch}",
                path="--batches",
            )
        shape = [batch, *(free if size == -1 else size for size in one.shape[1:])]
        if not 0 < prod(shape) <= _MOST_VALUES:
            raise InputError.one(
                "oip-size",
                f"input {one.name} would have {prod(shape)} values in the shape {shape}",
                path="--batches, --free-dimension",
                allowed=f"1 to {_MOST_VALUES}",
            )
        tensors.append(
            {
                "name": one.name,
                "datatype": one.datatype,
                "shape": shape,
                "data": [_ZERO[one.datatype]] * prod(shape),
            }
        )
    return {"inputs": tensors}
