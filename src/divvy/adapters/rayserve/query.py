"""What a request of Ray Serve says about itself: how large the query is, and by when it must be done."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Headers of an HTTP request; also read by the servers behind it.
BATCH_HEADER: Final = "divvy-batch"
SLO_HEADER: Final = "divvy-slo-ms"
_MOST: Final = 1 << 20


def batch_of(args: Sequence[Any], kwargs: Mapping[str, Any], headers: Mapping[str, str]) -> int:
    """Return the items of a query; 1 where nothing says.

    In this order: the header, a keyword ``batch``, the shape of the first tensor of an inference request, the
    first dimension of an array, the length of a list.
    """
    for text in (headers.get(BATCH_HEADER), kwargs.get("batch")):
        found = _whole(text)
        if found:
            return found
    for value in (*args, *kwargs.values()):
        found = _items(value)
        if found:
            return found
    return 1


def _items(value: Any) -> int:
    shape = getattr(value, "shape", None)
    if isinstance(value, Mapping):
        inputs = value.get("inputs")
        first = inputs[0] if isinstance(inputs, list) and inputs else None
        shape = first.get("shape") if isinstance(first, Mapping) else None
    if isinstance(shape, tuple | list) and shape:
        return _whole(shape[0])
    return _whole(len(value)) if isinstance(value, list | tuple) else 0


def _whole(value: Any) -> int:
    """Return a count from 1 on; 0 for what is none."""
    if isinstance(value, bool):
        return 0
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return number if 0 < number <= _MOST else 0


def slo_us_of(headers: Mapping[str, str], default_us: int) -> int:
    """Return the objective of a query, microseconds: its header's, else the default."""
    try:
        given = float(headers.get(SLO_HEADER, ""))
    except ValueError:
        return default_us
    return round(given * 1e3) if 0 < given < math.inf else default_us


def headers_of(args: Sequence[Any]) -> dict[str, str]:
    """Return the headers of a request that came through Ray's HTTP proxy, lower case; else nothing."""
    for value in args[:1]:
        scope = getattr(value, "_asgi_scope", None)
        if scope is None and (packed := getattr(value, "pickled_asgi_scope", None)) is not None:
            scope = pickle.loads(packed)  # noqa: S301 - Ray's own proxy has packed it
        if isinstance(scope, Mapping):
            pairs = scope.get("headers", ())
            return {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in pairs}
    return {}
