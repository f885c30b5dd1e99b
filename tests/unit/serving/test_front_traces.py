"""A query becomes a span with its own times, below the caller's; without OpenTelemetry nothing happens."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from divvy.adapters.front.traces import Traces, find_traces


class Span:
    def __init__(self, *args, start_time):
        self.args, self.start, self.status, self.ended = args, start_time, None, 0

    def set_status(self, status):
        self.status = status

    def end(self, at):
        self.ended = at


def test_a_span_has_the_times_of_its_query_and_its_callers_context():
    spans = []

    def start_span(*args, start_time):
        spans.append(Span(*args, start_time=start_time))
        return spans[-1]

    trace = SimpleNamespace(
        get_tracer=lambda _: SimpleNamespace(start_span=start_span),
        SpanKind=SimpleNamespace(SERVER="server"),
        Status=lambda code: code,
        StatusCode=SimpleNamespace(ERROR="error"),
    )
    traces = Traces(trace, lambda fields: fields["traceparent"])
    traces.record("00-1-2-01", 1500, {"divvy.slice": "a"}, good=True)
    traces.record("", 10, {}, good=False)
    first, second = spans
    assert first.args == ("infer", "00-1-2-01", "server", {"divvy.slice": "a"})
    assert first.ended - first.start == 1_500_000
    assert (first.status, second.status, second.args[1]) == (None, "error", None)


def test_without_opentelemetry_there_are_no_spans(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    assert find_traces() is None
