"""What the API needs of the rest: a store to read, an intake to write to, tokens; bootstrap gives them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from divvy.control.board import JobSight
from divvy.control.facts import Stint
from divvy.control.token import TokenRow
from divvy.errors import DivvyError, UnavailableError
from divvy.fleet.job import JobSpec, Phase

if TYPE_CHECKING:
    from divvy.planners.transfers.roads import Roads


class JobRecord(JobSight, Protocol):
    """A stored job."""

    @property
    def number(self) -> int:
        """Return its number; it grows with every submission."""

    @property
    def changed(self) -> int:
        """Return the journal entry that changed it last; 0 while the loop has not seen it."""


class LedgerLine(Protocol):
    """A ledger entry; times are ms."""

    @property
    def id(self) -> int:
        """Return its number; they grow in the order of writing."""

    @property
    def account(self) -> str:
        """Return the account that is charged."""

    @property
    def job(self) -> str:
        """Return the job; empty for an adjustment by hand."""

    @property
    def attempt(self) -> int:
        """Return the run of the job."""

    @property
    def started(self) -> int:
        """Return the begin."""

    @property
    def ended(self) -> int:
        """Return the end."""

    @property
    def gpus(self) -> int:
        """Return the devices."""

    @property
    def weight(self) -> int:
        """Return the charge per ms."""

    @property
    def charge(self) -> int:
        """Return the charge."""

    @property
    def allocated(self) -> bool:
        """Return whether it is charged to the budget."""

    @property
    def cause(self) -> str:
        """Return ``occupancy`` or the cause of an adjustment."""


class CapacityStep(Protocol):
    """Healthy devices since an instant."""

    @property
    def at(self) -> int:
        """Return since when, ms."""

    @property
    def gpus(self) -> int:
        """Return the devices."""

    @property
    def models(self) -> tuple[tuple[str, int], ...]:
        """Return how many of each model, in order of name; nothing where it was not kept."""

    @property
    def rate(self) -> int:
        """Return their charge per ms."""


class BudgetRecord(Protocol):
    """A version of the budget."""

    @property
    def version(self) -> int:
        """Return its number."""

    @property
    def at(self) -> int:
        """Return since when it holds, ms."""

    @property
    def author(self) -> str:
        """Return who made it."""

    @property
    def reason(self) -> str:
        """Return why."""

    @property
    def document(self) -> dict[str, Any]:
        """Return the budget in its nested form."""

    @property
    def changes(self) -> list[dict[str, Any]]:
        """Return what it changed: path, from, to."""


class PassRecord(Protocol):
    """A journal entry without its body."""

    @property
    def seq(self) -> int:
        """Return its number."""

    @property
    def at(self) -> int:
        """Return its time, ms."""

    @property
    def version(self) -> int:
        """Return the version of the state after it."""

    @property
    def events(self) -> int:
        """Return how many events it holds."""


class PublishedRow(Protocol):
    """The newest published view, as text."""

    @property
    def at(self) -> int:
        """Return its time, ms."""

    @property
    def text(self) -> str:
        """Return the JSON document."""


class Reader(Protocol):
    """Reads the store; every method may be called from any thread."""

    def job(self, name: str) -> JobRecord | None:
        """Return a job, None where there is none of that id."""

    def jobs(
        self,
        *,
        phases: Iterable[Phase | None] | None = None,
        account: str | None = None,
        author: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[JobRecord]:
        """Return jobs, newest first."""

    def jobs_changed(self, after: int, newer_than: int) -> Sequence[JobRecord]:
        """Return jobs changed after a journal entry, or with a greater number."""

    def stints(self, since: int, until: int) -> Sequence[Stint]:
        """Return jobs that were queued or running at any time in a period."""

    def unprotected(self, since: int, until: int) -> set[tuple[str, int]]:
        """Return the runs of allocated jobs of a period that had no protection: (job, attempt)."""

    def count(self, phases: Iterable[Phase | None]) -> int:
        """Return how many jobs are in these phases."""

    def launch(self, name: str) -> dict[str, Any] | None:
        """Return what a job runs (`LaunchSpec` as plain values)."""

    def history(self, name: str) -> Sequence[tuple[int, str, dict[str, Any], int]]:
        """Return what happened to a job, oldest first."""

    def ledger(
        self,
        *,
        account: str | None = None,
        job_id: str | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> Sequence[LedgerLine]:
        """Return ledger entries that touch a period."""

    def capacity(self, since: int, until: int) -> Sequence[CapacityStep]:
        """Return how the capacity changed in a period, beginning with what held at its start."""

    def budgets(self) -> Sequence[BudgetRecord]:
        """Return all versions of the budget, newest first."""

    def budget(self, version: int | None = None) -> BudgetRecord | None:
        """Return a version of the budget, by default the one in force."""

    def passes(
        self, *, before: int | None = None, limit: int = 100, decisions_only: bool = False
    ) -> Sequence[PassRecord]:
        """Return journal entries, newest first."""

    def entry(self, seq: int) -> tuple[PassRecord, dict[str, Any]] | None:
        """Return a journal entry and its body."""

    def published(self, newer_than: int = -1) -> PublishedRow | None:
        """Return the published view, None if its time is not newer."""


class Stored(Protocol):
    """A stored submission."""

    @property
    def job(self) -> str:
        """Return the job's id."""

    @property
    def created(self) -> bool:
        """Return False where the same submission was stored before."""


class Result(Protocol):
    """What the loop made of a request."""

    @property
    def fault(self) -> DivvyError | None:
        """Return why it was refused."""

    @property
    def result(self) -> dict[str, Any]:
        """Return what came of it."""


class Intake(Protocol):
    """Stores requests; what a method returns is durable before it returns."""

    def submit(self, spec: JobSpec, start: Mapping[str, Any], *, debug: bool, actor: str) -> Stored:
        """Store a job."""

    def cancel(self, name: str, actor: str) -> int:
        """Ask for the end of a job; return the number of the request, as the others do."""

    def change_budget(self, document: Mapping[str, Any], reason: str, version: int, actor: str) -> int:
        """Ask for a new budget version, made from ``version``."""

    def drain(self, node: str, reason: str, actor: str, window: tuple[int, int] | None = None) -> int:
        """Ask that a node takes no more work, now or in a window (ms; an end of 0 is open)."""

    def fault(self, node: str, code: str, actor: str, *, fatal: bool) -> int:
        """Report a fault of a node."""

    def healthy(self, node: str, actor: str) -> int:
        """Report a node well again."""

    def undrain(self, node: str, actor: str) -> int:
        """Ask that a node takes work again."""

    def charge_slices(self, name: str, account: str, charge: int, actor: str) -> tuple[int, bool]:
        """Ask once for the entry of a batch of slice-seconds; return its request, and if it is new."""

    def outcome(self, seq: int, timeout_seconds: float = 0) -> Result | None:
        """Return what came of a request, None while the loop has not taken it."""


class TokenStore(Protocol):
    """Keeps tokens."""

    def all(self) -> Sequence[TokenRow]:
        """Return the tokens that were not revoked, oldest first."""

    def add(self, token: TokenRow) -> None:
        """Keep a token."""

    def revoke(self, name: str, at: int) -> bool:
        """Revoke a token (``at`` in ms); return whether one of that id was in force."""

    def used(self, times: Mapping[str, int]) -> None:
        """Note when tokens were used last, by id."""


class SchedulerHealth(Protocol):
    """The scheduler's own word on how it is."""

    @property
    def state(self) -> str:
        """Return starting, running, stalled or stopped."""

    @property
    def at(self) -> int:
        """Return when it said so, wall clock, ms."""

    @property
    def seq(self) -> int:
        """Return its last journal entry."""

    @property
    def pass_ms(self) -> float:
        """Return how long its last pass took."""

    @property
    def problem(self) -> str:
        """Return what is wrong; empty when nothing is."""

    @property
    def restarts(self) -> int:
        """Return how often it was started again after a failure."""


#: Asks for the start interval of a waiting job at a time (ms): p50_at, p90_at, futures, started_in,
#: computed_at; None where there is none, or none yet.
Foresee = Callable[[str, int], Awaitable[dict[str, Any] | None]]


async def foresee_nothing(_job: str, _now: int) -> dict[str, Any] | None:
    """Return no start interval, where there is nothing to compute it with."""
    return None


#: Answers a what-if question (shares, policy, hours) at a time (ms).
Wonder = Callable[[Mapping[str, Any], int], Awaitable[dict[str, Any]]]


async def wonder_nothing(_question: Mapping[str, Any], _now: int) -> dict[str, Any]:
    """Refuse what-if questions, where there is nothing to replay them with.

    Raises:
        UnavailableError: Always.
    """
    raise UnavailableError.one("whatif-none", "what-if questions are not answered here", fix="ask `divvy up`")


class ByHand(Protocol):
    """Names the engine's own commands, where Divvy does not carry out itself what is asked."""

    mode: str

    def cancel(self, job: str) -> str:
        """Return the command that ends a job; empty where the engine does not know it."""

    def drain(self, node: str, reason: str, window: tuple[int, int] | None, *, fatal: bool = False) -> str:
        """Return the command that takes a node out of service, now or in a window (ms)."""

    def undrain(self, node: str) -> str:
        """Return the command that brings a node back."""


def _unheard() -> SchedulerHealth | None:
    return None


@dataclass(frozen=True, slots=True)
class Backend:
    """Everything behind the API.

    Attributes:
        reader: The store.
        intake: Where requests go.
        tokens: Bearer tokens.
        now: Clock of the control plane, ms since the Unix epoch.
        home: State directory, where the logs of jobs lie.
        daemon_uid: User who runs the control plane; an administrator, as root is.
        health: The scheduler's own word, None where it never spoke; cheap to ask for.
        foresee: Start intervals.
        whatif: Answers of what-if questions.
        interconnect: Reads the topology that pairs are made on; None where none is configured.
        by_hand: Names the engine's own commands where Divvy only looks on or advises; None: it acts.
    """

    reader: Reader
    intake: Intake
    tokens: TokenStore
    now: Callable[[], int]
    home: Path
    daemon_uid: int
    health: Callable[[], SchedulerHealth | None] = _unheard
    foresee: Foresee = foresee_nothing
    whatif: Wonder = wonder_nothing
    interconnect: Callable[[], Roads] | None = None
    by_hand: ByHand | None = None
