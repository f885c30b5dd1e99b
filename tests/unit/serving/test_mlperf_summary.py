"""The summary of MLPerf's generator, as version 5.1 writes it; and why it or Triton is missing."""

from __future__ import annotations

import pytest

from divvy.adapters.lab.triton import find_python
from divvy.adapters.load.mlperf import read_summary
from divvy.errors import EngineError, UnavailableError

SUMMARY = """================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Mode     : PerformanceOnly
Scheduled samples per second : 2.78
Result is : INVALID
  Performance constraints satisfied : Yes
  Min duration satisfied : NO

================================================
Additional Stats
================================================
50.00 percentile latency (ns)   : 27787012
90.00 percentile latency (ns)   : 66000000
95.00 percentile latency (ns)   : 97250925
97.00 percentile latency (ns)   : 99000000
99.00 percentile latency (ns)   : 147944689
99.90 percentile latency (ns)   : 147944689
"""


def test_a_summary_gives_percentiles_and_the_verdict():
    found = read_summary(SUMMARY)
    assert found["p99_ms"] == pytest.approx(147.944689) and found["scheduled_qps"] == 2.78
    assert found["valid"] is False and read_summary(SUMMARY.replace("INVALID", "VALID"))["valid"] is True


def test_a_text_that_is_no_summary_is_refused():
    with pytest.raises(EngineError, match="summary"):
        read_summary("nothing")


def test_without_triton_the_lab_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("DIVVY_TRITON_PYTHON", str(tmp_path / "python"))
    with pytest.raises(UnavailableError, match="nvidia-pytriton"):
        find_python()
    empty = tmp_path / "python"
    empty.write_text("#!/bin/sh\necho 'no module' >&2; exit 1\n")
    empty.chmod(0o755)
    with pytest.raises(UnavailableError, match="cannot import pytriton: no module"):
        find_python()
