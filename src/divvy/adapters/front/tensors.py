"""Between the two forms of the protocol: messages of gRPC, and HTTP with tensors as bytes behind the JSON."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from divvy.adapters.front.messages import messages

#: Datatype to its field of contents and its form in bytes; others come as bytes only.
_FORMS: Final = {
    "BOOL": ("bool_contents", "?"),
    "INT8": ("int_contents", "<i1"),
    "INT16": ("int_contents", "<i2"),
    "INT32": ("int_contents", "<i4"),
    "INT64": ("int64_contents", "<i8"),
    "UINT8": ("uint_contents", "<u1"),
    "UINT16": ("uint_contents", "<u2"),
    "UINT32": ("uint_contents", "<u4"),
    "UINT64": ("uint64_contents", "<u8"),
    "FP32": ("fp32_contents", "<f4"),
    "FP64": ("fp64_contents", "<f8"),
}


def to_http(request: Any) -> tuple[bytes, bytes]:
    """Return the JSON of an inference request, and the bytes of its tensors behind it.

    Raises:
        ValueError: If a tensor's contents do not fit its datatype, or there are more or fewer than inputs.
    """
    raw = list(request.raw_input_contents)
    if raw and (len(raw) != len(request.inputs) or any(one.HasField("contents") for one in request.inputs)):
        raise ValueError(f"{len(raw)} raw contents of {len(request.inputs)} inputs, or contents twice")
    parts = raw or [_packed_contents(one) for one in request.inputs]
    inputs = [
        {
            "name": one.name,
            "datatype": one.datatype,
            "shape": list(one.shape),
            "parameters": {**_plain(one.parameters), "binary_data_size": len(part)},
        }
        for one, part in zip(request.inputs, parts, strict=True)
    ]
    parameters = _plain(request.parameters)
    document: dict[str, Any] = {"inputs": inputs}
    if request.id:
        document["id"] = request.id
    if request.outputs:
        document["outputs"] = [
            {"name": one.name, "parameters": {"binary_data": True, **_plain(one.parameters)}}
            for one in request.outputs
        ]
    else:
        parameters["binary_data_output"] = True
    if parameters:
        document["parameters"] = parameters
    return json.dumps(document, separators=(",", ":")).encode(), b"".join(parts)


def from_http(body: bytes, header: bytes | None) -> Any:
    """Return the message of an HTTP answer; every output's contents are raw.

    Args:
        body: Its body.
        header: Its ``Inference-Header-Content-Length``, where it has one.

    Raises:
        ValueError: If it is no such answer.
    """
    place = len(body) if header is None else int(header)
    answer = messages()["ModelInferResponse"]()
    try:
        document = json.loads(body[:place])
        answer.model_name = str(document.get("model_name", ""))
        answer.model_version = str(document.get("model_version", ""))
        answer.id = str(document.get("id", ""))
        for row in document["outputs"]:
            answer.outputs.add(name=row["name"], datatype=row["datatype"], shape=row["shape"])
            size = row.get("parameters", {}).get("binary_data_size")
            if size is None:
                answer.raw_output_contents.append(_packed(row["datatype"], _flat(row["data"])))
                continue
            if not 0 <= size <= len(body) - place:
                raise ValueError(f"{size} bytes of {row['name']}")
            answer.raw_output_contents.append(body[place : place + size])
            place += size
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not an inference answer: {error}") from error
    return answer


def _packed_contents(tensor: Any) -> bytes:
    field = "bytes_contents" if tensor.datatype == "BYTES" else _FORMS.get(tensor.datatype, ("",))[0]
    used = [one.name for one, _ in tensor.contents.ListFields()]
    if used not in ([], [field]):
        raise ValueError(f"{tensor.name} of {tensor.datatype} in {', '.join(used)}")
    return _packed(tensor.datatype, getattr(tensor.contents, field) if field else ())


def _packed(datatype: str, values: Iterable[Any]) -> bytes:
    """Return values as the bytes of a datatype.

    Raises:
        ValueError: If there are no such.
    """
    if datatype == "BYTES":
        texts = [one if isinstance(one, bytes) else str(one).encode() for one in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    if datatype not in _FORMS:
        raise ValueError(f"{datatype} comes as raw contents only")
    try:
        return np.asarray(list(values), _FORMS[datatype][1]).tobytes()
    except (OverflowError, TypeError) as error:
        raise ValueError(f"values that are no {datatype}: {error}") from error


def _flat(data: Any) -> list[Any]:
    """Return the values of nested lists in order."""
    while data and isinstance(data[0], list):
        data = [value for row in data for value in row]
    return list(data)


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: getattr(value, which)
        for name, value in parameters.items()
        if (which := value.WhichOneof("parameter_choice")) is not None
    }
