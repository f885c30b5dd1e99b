"""What a finished replay says of every run, as tests of policies read it."""

from __future__ import annotations

from divvy.units import HOUR


def runs_of(done, last):
    """Return (job, begin, end, protected, and one column of the record more) per run, times in hours."""
    assert not done.refused
    record, spec = done.record, done.workload.spec
    more = getattr(record, last)
    return [
        (spec[row].id, record.start[run] / HOUR, record.end[run] / HOUR, record.protected[run], more[run])
        for run, row in enumerate(record.job)
    ]
