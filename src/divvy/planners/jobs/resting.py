"""Back-off: unallocated work that gave way again and again rests before it is tried again.

Without it the oldest unallocated job is started on every device that is free for a moment, and evicted a
moment later, for ever: each time it loses its work and somebody waits for it to leave.
"""

from __future__ import annotations

from typing import Final

from divvy.fleet.budget import Policy
from divvy.fleet.snapshot import JobTable

#: The rest doubles this often at most.
DOUBLINGS: Final = 6


def rests_until(jobs: JobTable, row: int, policy: Policy) -> int:
    """Return until when a queued unallocated job rests, ms; 0 if it does not."""
    evictions = jobs.preemptions[row]
    if not policy.unallocated_backoff or not evictions:
        return 0
    return jobs.queued[row] + (policy.unallocated_backoff << min(evictions - 1, DOUBLINGS))
