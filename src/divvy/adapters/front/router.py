"""The live router: queries to slices by a `Desk`, failures retried once, slices ejected and admitted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from divvy.adapters.front.backend import Backend
from divvy.adapters.front.charges import Charges
from divvy.adapters.front.config import Declared, Setup
from divvy.adapters.front.http1 import Head, answer, refuse
from divvy.adapters.front.traces import find_traces
from divvy.errors import InputError
from divvy.planners.queries.desk import DOWN, UP, Desk, Order, Query

#: Of queries that name no account.
NOBODY: Final = ""

_PROBE_SECONDS: Final = 0.5
_PASSED: Final = (b"inference-header-content-length", b"content-encoding")
#: A run that takes so many times its estimate, and at least so many seconds, is given up.
_PATIENCE, _LEAST_SECONDS = 20.0, 10.0

#: Told the whole answer.
Reply = Callable[[bytes], None]


@dataclass(eq=False, slots=True)
class Ticket:
    """A query with its request and whoever waits for it."""

    query: Query
    request: Callable[[Backend], bytes]
    reply: Reply | None
    explain: bool
    slice: str = ""
    account: str = NOBODY
    trace: str = ""


def now_us() -> int:
    """Return the time that the desk is told."""
    return time.monotonic_ns() // 1000


class Router:
    """Routes the queries of one model.

    Args:
        desk: What decides.
        model: Its name.
        most_waiting: More queries than this do not wait: they are refused.
        rule: Name of the rule, for explanations.
        refuse_late: Whether a query that would miss its objective is refused at once.
        longest_seconds: A query that has waited so long is refused.
        charges: Charges accounts for what slices work; nobody is charged where None.
    """

    def __init__(
        self,
        desk: Desk,
        model: str,
        most_waiting: int,
        rule: str,
        *,
        refuse_late: bool = False,
        longest_seconds: float = 30.0,
        charges: Charges | None = None,
    ) -> None:
        self.desk, self.model, self.rule = desk, model, rule
        self._most, self._refuse_late = most_waiting, refuse_late
        self._charges, self._traces = charges, find_traces()
        self._longest_us = round(longest_seconds * 1e6)
        self.slice_us: dict[str, int] = {}
        """Microseconds of slices by account."""
        self._backends: dict[str, Backend] = {}
        self._places: dict[str, Declared] = {}
        self._tickets: dict[int, Ticket] = {}
        self.refused = self.retried = self.lost = self.cancelled = 0
        self.met = self.late = 0

    @property
    def open(self) -> int:
        """Return how many queries are in the router."""
        return len(self._tickets)

    def declare(self, slices: Mapping[str, Declared]) -> None:
        """Serve on these slices from now on; others finish what they run."""
        for name, place in slices.items():
            if self._places.get(name) != place:
                self._backends[name] = Backend(place.host, place.port, place.prefix)
                self._places[name] = place
        self._go(self.desk.declare({name: one.slot for name, one in slices.items()}, now_us()))

    def check(self, setup: Setup) -> None:
        """Refuse what cannot be served: another model, or sizes that its profile does not have.

        Raises:
            InputError: If they are not; nothing has changed then.
        """
        unknown = sorted({one.slot.gpcs for one in setup.slices.values()} - {*self.desk.sizes})
        if setup.model != self.model or unknown:
            raise InputError.one(
                "serve-backends",
                f"model {setup.model!r}, sizes without a profile: {unknown}",
                allowed=f"{self.model!r} on {', '.join(f'{size}g' for size in self.desk.sizes)}",
            )

    def take(
        self,
        query: Query,
        request: Callable[[Backend], bytes],
        reply: Reply,
        *,
        explain: bool,
        account: str = NOBODY,
        trace: str = "",
    ) -> Ticket | None:
        """Take a query in; None where it was refused at once."""
        if not self.desk.runs_somewhere(query.batch):
            self.refused += 1
            if any(post.state != UP for post in self.desk.posts.values()) or not self.desk.posts:
                reply(refuse(503, "no slice is there for this query now", "Retry-After: 1\r\n"))
            else:
                reply(refuse(400, f"batch {query.batch} fits on no slice"))
            return None
        if self.desk.waiting >= self._most:
            self.refused += 1
            reply(refuse(503, f"{self._most} queries wait already", "Retry-After: 1\r\n"))
            return None
        late_us = self.desk.late_by(query, query.arrived_us) if self._refuse_late else 0
        if late_us:
            self.refused += 1
            again = -(-late_us // 1_000_000)
            text = f"{late_us / 1e3:g} ms too late for its objective of {query.slo_us / 1e3:g} ms"
            reply(refuse(503, text, f"Retry-After: {again}\r\n"))
            return None
        ticket = Ticket(query, request, reply, explain, account=account, trace=trace)
        self._tickets[id(query)] = ticket
        self._go(self.desk.arrive(query, now_us()))
        return ticket

    def anybody(self) -> Backend | None:
        """Return a new connection to some slice that is up; None where there is none."""
        for name, post in self.desk.posts.items():
            if post.state == UP:
                place = self._places[name]
                return Backend(place.host, place.port, place.prefix)
        return None

    def leave(self, ticket: Ticket) -> None:
        """Cancel a query whose client has gone."""
        if self._tickets.pop(id(ticket.query), None) is None:
            return
        self.cancelled += 1
        ticket.reply = None
        if self.desk.withdraw(ticket.query, now_us()):
            return
        self._charge(ticket, ticket.slice, now_us())
        self._backends[ticket.slice].cancel()
        self._go(self.desk.end(ticket.slice, ticket.query, now_us(), good=False))

    def _go(self, orders: list[Order]) -> None:
        for name, query in orders:
            ticket = self._tickets[id(query)]
            ticket.slice = name
            backend = self._backends[name]
            seconds = max(query.estimate_us * _PATIENCE / 1e6, _LEAST_SECONDS)

            def done(head: Head | None, body: bytes, ticket: Ticket = ticket, name: str = name) -> None:
                self._answered(ticket, name, head, body)

            backend.ask(ticket.request(backend), seconds, done)

    def _answered(self, ticket: Ticket, name: str, head: Head | None, body: bytes) -> None:
        now, query = now_us(), ticket.query
        if id(query) not in self._tickets:
            return
        self._charge(ticket, name, now)
        status = 0 if head is None else int(head.line[1])
        if head is not None and status not in {502, 503}:
            del self._tickets[id(query)]
            self._trace(ticket, name, now, good=status == 200)
            if status == 200:
                in_time = now - query.arrived_us <= query.slo_us
                self.met += in_time
                self.late += not in_time
            if ticket.reply is not None:
                ticket.reply(self._passed_on(ticket, name, status, head, body))
            self._go(self.desk.end(name, query, now, good=status == 200))
            return
        orders = self.desk.end(name, query, now, good=False)
        orders += self.desk.eject(name, now)
        query.avoid = name
        late = now - query.arrived_us > query.slo_us and query.tries > 1
        if query.tries < 2 and not late and self.desk.runs_somewhere(query.batch):
            self.retried += 1
            self._go([*orders, *self.desk.arrive(query, now)])
            return
        del self._tickets[id(query)]
        self.lost += 1
        self._trace(ticket, name, now, good=False)
        if ticket.reply is not None:
            why = body.decode("latin-1") if head is None else f"status {status}"
            ticket.reply(refuse(502, f"{name}: {why}", "Retry-After: 1\r\n"))
        self._go(orders)

    def _trace(self, ticket: Ticket, name: str, now: int, *, good: bool) -> None:
        """Make the span of a query, where spans are made."""
        if self._traces is None:
            return
        query = ticket.query
        told: dict[str, str | int | bool] = {
            "divvy.slice": name,
            "divvy.rule": self.rule,
            "divvy.batch": query.batch,
            "divvy.tries": query.tries,
            "divvy.waited_us": query.wait_us,
            "divvy.estimate_us": query.estimate_us,
        }
        self._traces.record(ticket.trace, max(now - query.arrived_us, 0), told, good=good)

    def _charge(self, ticket: Ticket, name: str, now: int) -> None:
        """Count what a slice has worked for whoever asked, also where nothing came of it."""
        took = max(now - ticket.query.arrived_us - ticket.query.wait_us, 0)
        self.slice_us[ticket.account] = self.slice_us.get(ticket.account, 0) + took
        if self._charges is not None:
            self._charges.add(ticket.account, self._places[name].slot.gpcs, took)

    def _passed_on(self, ticket: Ticket, name: str, status: int, head: Head, body: bytes) -> bytes:
        more = "".join(
            f"{key.decode()}: {head.fields[key].decode('latin-1')}\r\n"
            for key in _PASSED
            if key in head.fields
        )
        if ticket.explain:
            query = ticket.query
            told = {
                "slice": name,
                "rule": self.rule,
                "batch": query.batch,
                "tries": query.tries,
                "waited_us": query.wait_us,
                "estimate_us": query.estimate_us,
                "slo_us": query.slo_us,
            }
            more += f"Divvy-Decision: {json.dumps(told, separators=(',', ':'))}\r\n"
        kind = head.fields.get(b"content-type", b"application/json").decode("latin-1")
        return answer(status, body, kind, more)

    def _expire(self, now: int) -> None:
        """Refuse queries that have waited too long: tickets lie in order of arrival."""
        for ticket in list(self._tickets.values()):
            if now - ticket.query.arrived_us < self._longest_us:
                return
            if self.desk.withdraw(ticket.query, now):
                del self._tickets[id(ticket.query)]
                self.lost += 1
                if ticket.reply is not None:
                    ticket.reply(refuse(503, "no slice was free in time", "Retry-After: 1\r\n"))

    def hold(self, name: str) -> bool:
        """Send nothing more to a slice until it is admitted; return whether there is one of that name."""
        self._go(self.desk.hold(name, now_us()))
        return name in self.desk.posts

    def admit(self, name: str) -> bool:
        """Send queries to a slice again; return whether there is one of that name."""
        self._go(self.desk.admit(name, now_us()))
        return name in self.desk.posts

    def backends(self) -> list[dict[str, Any]]:
        """Return what every slice does, as ``divvy.serve.status/1`` lists them."""
        now, drift = now_us(), self.desk.book.drift
        return [
            {
                "name": name,
                "url": f"http://{place.host}:{place.port}{place.prefix}",
                "gpcs": post.slot.gpcs,
                "state": post.state,
                "in_flight": int(post.running is not None),
                "queued": len(post.given),
                "wait_ms": self.desk.busy_us(name, now) / 1e3,
                "correction": round(drift.get(post.slot.gpcs, 1.0), 4),
                "served": post.served,
                "items": post.items,
                "failed": post.failed,
                "busy_seconds": post.busy_us / 1e6,
            }
            for name, post in self.desk.posts.items()
            if (place := self._places[name])
        ]

    def counts(self) -> dict[str, int]:
        """Return how many queries ended how: answered within their objective or late, or not answered."""
        return {
            "met": self.met,
            "late": self.late,
            "refused": self.refused,
            "lost": self.lost,
            "cancelled": self.cancelled,
            "retried": self.retried,
        }

    async def probe(self) -> None:
        """Ask ejected slices again and again whether they are ready, and admit those that are."""
        while True:
            await asyncio.sleep(_PROBE_SECONDS)
            self._expire(now_us())
            for name, post in list(self.desk.posts.items()):
                if post.state == DOWN:
                    place = self._places[name]
                    probe = Backend(place.host, place.port)
                    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()

                    def done(head: Head | None, _: bytes, ready: asyncio.Future[int] = ready) -> None:
                        if not ready.done():
                            ready.set_result(0 if head is None else int(head.line[1]))

                    path = f"{place.prefix}/v2/health/ready"
                    probe.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), _PROBE_SECONDS, done)
                    status = await ready
                    probe.close()
                    if status == 200:
                        self._go(self.desk.admit(name, now_us()))

    def metrics(self) -> str:
        """Return the figures for Prometheus."""
        rows = [
            ("divvy_serve_waiting", "gauge", "Queries that wait", self.desk.waiting),
            ("divvy_serve_refused_total", "counter", "Queries refused", self.refused),
            ("divvy_serve_retried_total", "counter", "Queries sent to another slice", self.retried),
            ("divvy_serve_lost_total", "counter", "Queries answered with an error of a slice", self.lost),
            ("divvy_serve_cancelled_total", "counter", "Queries whose client went", self.cancelled),
        ]
        lines = [f"# HELP {n} {t}\n# TYPE {n} {k}\n{n} {v}\n" for n, k, t, v in rows]
        for name, kind, field in (
            ("queries_total", "counter", "served"),
            ("items_total", "counter", "items"),
            ("failed_total", "counter", "failed"),
        ):
            full = f"divvy_serve_slice_{name}"
            lines.append(f"# TYPE {full} {kind}\n")
            for one, post in self.desk.posts.items():
                label = f'{{slice="{one}",gpcs="{post.slot.gpcs}",state="{post.state}"}}'
                lines.append(f"{full}{label} {getattr(post, field)}\n")
        lines.append("# TYPE divvy_serve_slice_busy_seconds_total counter\n")
        for one, post in self.desk.posts.items():
            lines.append(f'divvy_serve_slice_busy_seconds_total{{slice="{one}"}} {post.busy_us / 1e6:g}\n')
        lines.append("# TYPE divvy_serve_drift gauge\n")
        for gpcs, factor in self.desk.book.drift.items():
            lines.append(f'divvy_serve_drift{{gpcs="{gpcs}"}} {factor:.4f}\n')
        lines.append("# TYPE divvy_serve_account_slice_seconds_total counter\n")
        for account, spent in self.slice_us.items():
            lines.append(f'divvy_serve_account_slice_seconds_total{{account="{account}"}} {spent / 1e6:g}\n')
        if self._charges is not None:
            lines.append(self._charges.metrics())
        return "".join(lines)
