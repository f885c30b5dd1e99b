"""Which waiting jobs certainly fit nowhere: a bound that is remembered and mended, not searched again.

Most passes on a full fleet change one node. A job that found no room a moment ago can only find some now
if a node has *grown* for it: devices became free there, a run there lost its protection, or somebody from
whom the job's account may take joined in. So for every shape of job the nodes that could serve it at most
are kept, and only those that have grown since are looked at again.

The bound of a node is its loose devices (free, or under unallocated runs) plus those of every interruptible
run whose account may be taken from and has the run's weight above its floor. A search for victims never
does better, so skipping what the bound excludes leaves every plan as it is: the memory is exact, and a
planner without it decides the same.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from divvy.planners.jobs.holdings import Run
from divvy.planners.jobs.placement import FreeMap, demands, each_bit
from divvy.planners.jobs.queue import Head, Rank

#: Growth that is remembered; a longer past costs more than looking at every node once.
_LOG: Final = 1 << 14

#: Account, rank, devices, devices per node, model.
_Shape = tuple[int, Rank, int, int, str]


class Holdings(Protocol):
    """What the bound reads of the index.

    Attributes:
        loose: Devices that are free or under unallocated runs.
        held: Weight of allocated runs per tree row.
        floors: Weight per tree row below which nobody is pushed.
    """

    loose: FreeMap
    held: list[int]
    floors: list[float]


class _Fact(NamedTuple):
    """Where a shape of job could go at most, at some time.

    Attributes:
        stamp: How much had grown by then.
        givers: From whom its account could take then, its own row included if it could swap.
        nodes: The nodes that could serve it, as a bit set; too few.
    """

    stamp: int
    givers: int
    nodes: int


class _Note(NamedTuple):
    """That nothing of an account fits anywhere; see `Reach.note`."""

    stamp: int
    givers: int
    queue: int
    least: int


class Reach:
    """The memory of what fits nowhere, and the interruptible runs per node that it rests on."""

    def __init__(self) -> None:
        self.exposed: dict[int, dict[int, Run]] = {}
        """Interruptible allocated runs per node, by job."""
        self._of: dict[int, dict[int, Run]] = {}
        """The same per account."""
        self._where: dict[int, int] = {}
        """The nodes on which an account has interruptible runs, as a bit set."""
        self._could: dict[int, int] = {}
        """Devices under interruptible allocated runs per node, whoever's."""
        self._log: list[int] = []
        self._grown: dict[int, int] = {}
        """What `_grown_since` found, for a log of the length `_grown_at`."""
        self._grown_at = 0
        self._facts: dict[_Shape, _Fact] = {}
        self._served: dict[_Shape, list[int]] = {}
        """Nodes that could serve a shape when last asked: the first to look at."""
        self._notes: dict[int, _Note] = {}

    def forget(self) -> None:
        """Forget what fits nowhere: nodes, shares or the policy changed."""
        self._log.clear()
        self._grown.clear()
        self._facts.clear()
        self._served.clear()
        self._notes.clear()

    def grow(self, node: int) -> None:
        """Note that a node may have more to give than before."""
        if len(self._log) >= _LOG:
            self.forget()
        self._log.append(node)

    def expose(self, run: Run) -> None:
        """Note that a run may be taken from now on."""
        self._of.setdefault(run.account, {})[run.row] = run
        for node, gpus in run.placement:
            self.exposed.setdefault(node, {})[run.row] = run
            self._could[node] = self._could.get(node, 0) + gpus
            self._where[run.account] = self._where.get(run.account, 0) | 1 << node
            self.grow(node)

    def hide(self, run: Run) -> None:
        """Note that an interruptible run has left."""
        del self._of[run.account][run.row]
        for node, gpus in run.placement:
            here = self.exposed[node]
            here.pop(run.row, None)
            self._could[node] -= gpus
            if not any(other.account == run.account for other in here.values()):
                self._where[run.account] &= ~(1 << node)

    def more_room(self, account: int, room: float) -> None:
        """Note that an account holds more: runs heavier than ``room``, what it could lose, may be taken."""
        for run in self._of.get(account, {}).values():
            if run.weight > room:
                for node, _ in run.placement:
                    self.grow(node)

    def needs(self, head: Head, loose: FreeMap) -> int:
        """Return the devices that one node must have for a job, 0 if no node would do anyway."""
        return next(iter(demands(head.gpus, head.per_node, loose.node_size(head.model))), 0)

    def note(self, account: int, givers: int, queue: int, least: int) -> None:
        """Note that all first jobs of an account fit nowhere now.

        Args:
            account: Its tree row.
            givers: From whom it may take.
            queue: Version of its queue.
            least: Devices that one node must have for the smallest of them.
        """
        self._notes[account] = _Note(len(self._log), givers, queue, least)

    def still_excludes(self, account: int, givers: int, queue: int, loose: FreeMap) -> bool:
        """Return whether what was noted of an account holds: nobody joined in, no growth is of any use."""
        note = self._notes.get(account)
        if note is None or note.queue != queue or givers & ~note.givers:
            return False
        if note.stamp != len(self._log):
            free, could, least = loose.free, self._could, note.least
            for node in self._log[note.stamp :]:
                if free[node] + could.get(node, 0) >= least:
                    return False
            self._notes[account] = _Note(len(self._log), givers, queue, least)
        return True

    def excludes(self, account: int, head: Head, rows: int, holdings: Holdings) -> bool:
        """Return whether a job certainly fits nowhere, whoever gives way.

        Args:
            account: Tree row of its account.
            head: The job.
            rows: The accounts from which it may take, as a bit set of tree rows; its own among them if it
                holds an interruptible run that ranks behind the job.
            holdings: What everybody holds.
        """
        key = (account, head.rank, head.gpus, head.per_node, head.model)
        fact = self._facts.get(key)
        if fact is not None and fact.stamp == len(self._log) and not rows & ~fact.givers and not fact.nodes:
            return True
        loose = holdings.loose
        asked = demands(head.gpus, head.per_node, loose.node_size(head.model))
        if not asked:
            return True
        most, count = asked[0], asked.count(asked[0])
        served = self._served.get(key)
        if served is not None and all(
            self._serves(node, most, account, head.rank, rows, holdings) for node in served
        ):
            return False
        serving: list[int] = []
        for node in each_bit(self._to_look_at(fact, rows, most, loose) & loose.nodes_of(head.model)):
            if self._serves(node, most, account, head.rank, rows, holdings):
                serving.append(node)
                if len(serving) == count:
                    self._facts.pop(key, None)
                    self._served[key] = serving
                    return False
        self._facts[key] = _Fact(len(self._log), rows, sum(1 << node for node in serving))
        self._served.pop(key, None)
        return True

    def _to_look_at(self, fact: _Fact | None, rows: int, most: int, loose: FreeMap) -> int:
        """Return the nodes (a bit set) that could serve a job now, those left out that a fact rules out."""
        nodes = loose.at_least(most)
        where = self._where
        for giver in each_bit(rows):
            nodes |= where.get(giver, 0)
        if fact is not None and nodes:
            grown = self._grown_since(fact.stamp) | fact.nodes
            for giver in each_bit(rows & ~fact.givers):
                grown |= where.get(giver, 0)
            nodes &= grown
        return nodes

    def _grown_since(self, stamp: int) -> int:
        """Return the nodes that have grown since, as a bit set; kept until another node grows."""
        log = self._log
        if self._grown_at != len(log):
            self._grown_at = len(log)
            self._grown.clear()
        grown = self._grown.get(stamp)
        if grown is None:
            grown = 0
            for node in set(log[stamp:]):
                grown |= 1 << node
            self._grown[stamp] = grown
        return grown

    def _serves(self, node: int, gpus: int, account: int, rank: Rank, rows: int, holdings: Holdings) -> bool:
        have = holdings.loose.free[node]
        if have >= gpus:
            return True
        exposed = self.exposed.get(node)
        if not exposed:
            return False
        held, floors = holdings.held, holdings.floors
        for run in exposed.values():
            giver = run.account
            if not rows >> giver & 1:
                continue
            if run.rank > rank if giver == account else run.weight <= held[giver] - floors[giver]:
                have += sum([here for place, here in run.placement if place == node])
                if have >= gpus:
                    return True
        return False
