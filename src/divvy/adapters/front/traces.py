"""A span per query, where OpenTelemetry is installed: how long it waited, where it ran, what came of it.

Spans are made when a query is answered, with the times that it had: nothing is carried along meanwhile but
the caller's ``traceparent``, which is also passed on to the slice.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any, Final

_NAME: Final = "divvy.serve"


class Traces:
    """Makes spans.

    Args:
        trace: The module ``opentelemetry.trace``.
        context_of: Returns the context that the fields of a request name.
    """

    def __init__(self, trace: Any, context_of: Any) -> None:
        self._trace, self._context_of = trace, context_of
        self._tracer = trace.get_tracer(_NAME)

    def record(
        self, parent: str, took_us: int, attributes: Mapping[str, str | int | bool], *, good: bool
    ) -> None:
        """Make the span of a query that is answered now.

        Args:
            parent: The caller's ``traceparent``; empty where it has sent none.
            took_us: How long the query was in the router.
            attributes: What is known of it.
            good: Whether it was answered well.
        """
        end_ns = time.time_ns()
        context = self._context_of({"traceparent": parent}) if parent else None
        kind = self._trace.SpanKind.SERVER
        span = self._tracer.start_span(
            "infer", context, kind, dict(attributes), start_time=end_ns - took_us * 1000
        )
        if not good:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end(end_ns)


def find_traces() -> Traces | None:
    """Return what makes spans; None where OpenTelemetry is not installed, or nobody has set up its SDK."""
    try:
        trace = importlib.import_module("opentelemetry.trace")
        propagation = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
    except ImportError:
        return None
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return Traces(trace, propagation.TraceContextTextMapPropagator().extract)
