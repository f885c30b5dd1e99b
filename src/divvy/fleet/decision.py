"""Plans: what to do now, and why, for every subject that was considered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from divvy.fleet.reason import Reason

#: Devices of a gang: (node row, devices) pairs in node order.
Placement = tuple[tuple[int, int], ...]


class Preempt(NamedTuple):
    """Stop a run to make room.

    Attributes:
        job: Row of the victim.
        by: Row of the job that takes the devices; -1 for a drain.
        reason: One of the ``PREEMPTED_*`` codes.
        victim_balance: Balance of the victim's side where the two paths part.
        balance: Balance of the requester's side there, entry charge included.
    """

    job: int
    by: int
    reason: Reason
    victim_balance: float
    balance: float


class Start(NamedTuple):
    """Give devices to a queued job.

    Attributes:
        job: Row of the job.
        placement: Where.
        protected: Whether its minimum runtime protects it (false when an own swap handed on the
            victim's lack of protection, and for unallocated work).
        reason: One of the ``STARTED_*`` codes.
    """

    job: int
    placement: Placement
    protected: bool
    reason: Reason


Decision = Preempt | Start


class Hold(NamedTuple):
    """Give a gang that cannot start a dated slot.

    Until it is due, only work that can be gone by then starts on these devices; from then on the gang may
    take what is not protected there.

    Attributes:
        job: Row of the gang.
        placement: The devices it is going to take.
        due: When they are free or may be taken, ms.
    """

    job: int
    placement: Placement
    due: int


class Lapse(NamedTuple):
    """Give up a dated slot: its gang has no claim any more, or could not use it in time."""

    job: int


class Standing(NamedTuple):
    """An account as one pass saw it; the very numbers the queue is sorted by.

    Attributes:
        account: Row in the tree.
        rank: Place among the accounts with demand, 0 goes first.
        balance: Tapered charge over entitlement; 1 is exactly served.
        floor: Devices below which nobody pushes it while it has demand.
        held: Allocated devices it holds after the pass.
        unallocated: Unallocated devices it holds after the pass.
        waiting: Its queued allocated jobs after the pass.
        waiting_gpus: Their devices.
    """

    account: int
    rank: int
    balance: float
    floor: float
    held: int
    unallocated: int
    waiting: int
    waiting_gpus: int


class Wait(NamedTuple):
    """Why a job that was tried stays in the queue.

    For ``WAIT_LIMIT``, ``free`` is what the limit leaves and ``owed_by`` the account whose limit it is.

    Attributes:
        reason: One of the ``WAIT_*`` codes.
        needed: Devices it asks for.
        free: Devices free for it (in its model) when it was tried.
        reclaimable: Devices that could be taken back for it by the rules.
        protected: Devices of over-served accounts that are still inside a minimum runtime.
        owed_by: Row of the account at the head of the queue then.
    """

    reason: Reason
    needed: int
    free: int
    reclaimable: int
    protected: int
    owed_by: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of a planner to one snapshot.

    Attributes:
        version: Version of the snapshot; apply refuses a plan whose version is stale.
        now: Time of the pass, ms.
        decisions: In order; the preemptions that make room for a start come just before it.
        standings: Per account with jobs, in rank order.
        waits: Per job that was tried and waits. A queued job that is not here waits behind the last
            tried job of its account; see `divvy.control.explain`.
        slots: Dated slots given and given up.
        next_check: When to look again even if nothing happens, ms; 0 means no need.
    """

    version: int
    now: int
    decisions: tuple[Decision, ...] = ()
    standings: tuple[Standing, ...] = ()
    waits: tuple[tuple[int, Wait], ...] = ()
    slots: tuple[Hold | Lapse, ...] = ()
    next_check: int = 0
