"""A fleet that answers like the API: hand-made figures, consistent with each other, no scheduler behind them.

`test_face_fake.py` holds every answer to the models of `divvy.service.schemas`, so the fake cannot drift.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

ACCOUNTS = (
    # path, share, leaf, owners, rank, balance, held part
    ("lab", 100, False, ["ada"], None, 0.98, 0.0),
    ("lab.vision", 45, False, ["vera"], None, 1.04, 0.0),
    ("lab.vision.perception", 60, True, [], 2, 1.12, 0.3),
    ("lab.vision.mapping", 40, True, [], 1, 0.93, 0.15),
    ("lab.language", 40, False, ["lin"], None, 0.91, 0.0),
    ("lab.language.pretraining", 70, True, [], 0, 0.87, 0.25),
    ("lab.language.alignment", 30, True, [], 3, 1.21, 0.1),
    ("lab.robotics", 10, True, ["rob"], None, 0.42, 0.0),
)
LEAVES = tuple(row[0] for row in ACCOUNTS if row[2])
AUTHORS = ("ada", "bo", "chen", "dara", "eli")
NAMES = ("train-vit-l", "sweep-17", "eval", "tokenise", "notebook", "map-fusion", "sft-7b", "reward-model")
REASONS = {
    "wait-behind": "other jobs of the same account go first",
    "wait-protected": "what could be taken back is still inside its minimum runtime",
    "wait-capacity": "too few devices are free or may be taken back now",
    "wait-overserved": "its account has had its share, so it waits for what comes free",
}


class RefusedError(Exception):
    """A refusal with its problem document."""

    def __init__(self, status: int, code: str, message: str, **more: str) -> None:
        super().__init__(message)
        fault = {"code": code, "path": "", "message": message, "allowed": "", "fix": "", **more}
        self.document = {
            "type": f"urn:divvy:problem:{code}",
            "title": message,
            "status": status,
            "detail": message,
            "code": code,
            "faults": [fault],
        }


#: Figures of an hour that the row of an account sums.
_SUMMED = (
    "capacity",
    "demand",
    "owed",
    "delivered",
    "unallocated",
    "protected",
    "lost",
    "carried",
    "adjustments",
)


class FakeFleet:
    """The state behind the answers; methods are named after the routes."""

    def __init__(self, nodes: int = 6, per_node: int = 8, waiting: int = 14, seed: int = 7) -> None:
        self.random = random.Random(seed)
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.version = 100
        self.at = time.time()
        self.age = 0.4
        self.silent = False
        self.budget_version = 3
        self.next_id = 0
        self.jobs: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.nodes = [self._node(number, per_node, nodes) for number in range(nodes)]
        self.shares = {row[0]: float(row[1]) for row in ACCOUNTS}
        self._fill()
        for _ in range(waiting):
            self._queue_one()
        self.versions = [
            {
                "version": 3,
                "at": self.at - 86_400,
                "author": "ada",
                "reason": "robotics starts in May",
                "changes": [
                    {"path": "accounts.lab.vision.share", "from": 50, "to": 45},
                    {"path": "accounts.lab.robotics.share", "from": 5, "to": 10},
                ],
            },
            {
                "version": 2,
                "at": self.at - 40 * 86_400,
                "author": "vera",
                "reason": "mapping has a deadline",
                "changes": [{"path": "accounts.lab.vision.mapping.share", "from": 30, "to": 40}],
            },
            {
                "version": 1,
                "at": self.at - 90 * 86_400,
                "author": "ada",
                "reason": "first budget",
                "changes": [],
            },
        ]

    # -- building ---------------------------------------------------------------------------------------

    def _node(self, number: int, per_node: int, count: int) -> dict[str, Any]:
        state, cause = "up", ""
        if count > 4 and number == count - 2:
            state, cause = "draining", "fan replaced on Tuesday"
        if count > 4 and number == count - 1:
            state, cause = "down", "XID 79: fell off the bus"
        model = "H100-80GB" if number < count * 2 // 3 else "A100-80GB"
        return {
            "name": f"gpu-{number + 1:03d}",
            "model": model,
            "gpus": per_node,
            "free": per_node if state == "up" else 0,
            "state": state,
            "cause": cause,
            "maintenance": None,
            "domain": f"rail-{number // 4}",
            "cluster": "",
            "devices": [
                {
                    "index": index,
                    "job": None,
                    "account": None,
                    "state": "down" if state == "down" else "free",
                    "utilisation": None if state == "down" else 0.0,
                    "utilisation_reason": "the node is down" if state == "down" else None,
                }
                for index in range(per_node)
            ],
        }

    def _fill(self) -> None:
        """Run jobs on most devices, on whole or half nodes."""
        for node in self.nodes:
            if node["state"] == "down":
                continue
            index = 0
            while index < node["gpus"]:
                size = self.random.choice((1, 2, 4, 8))
                size = min(size, node["gpus"] - index)
                if self.random.random() < 0.12:
                    index += size
                    continue
                allocated = self.random.random() > 0.18
                account = self.random.choice(LEAVES[:-1])
                job = self._job(account, size, 3_600.0 * self.random.choice((1, 2, 8)) if allocated else 0.0)
                running = self.random.uniform(60, 20_000)
                protected = allocated and running < job["min_runtime_seconds"]
                label = "unallocated" if not allocated else "protected" if protected else "interruptible"
                job.update(
                    state=label,
                    started_at=self.at - running,
                    running_seconds=running,
                    waiting_seconds=None,
                    attempt=1,
                    placement=[{"node": node["name"], "gpus": size}],
                    protected_until_at=self.at - running + job["min_runtime_seconds"] if protected else None,
                )
                for device in node["devices"][index : index + size]:
                    device.update(job=job["id"], account=account, state=label)
                    device["utilisation"] = round(self.random.uniform(0.3, 1), 2)
                    if node["model"].startswith("A100") and node["state"] == "up":
                        device.update(utilisation=None, utilisation_reason="no DCGM on this node")
                index += size
            if node["state"] == "up":
                node["free"] = sum(device["job"] is None for device in node["devices"])

    def _job(self, account: str, gpus: int, minimum: float, **more: Any) -> dict[str, Any]:
        self.next_id += 1
        job = {
            "id": f"j{self.next_id:05d}",
            "name": self.random.choice(NAMES),
            "account": account,
            "accounts": [account],
            "author": self.random.choice(AUTHORS),
            "gpus": gpus,
            "model": "",
            "clusters": [],
            "per_node": 0,
            "kind": "batch",
            "allocated": minimum > 0,
            "min_runtime_seconds": minimum,
            "time_limit_seconds": None,
            "resumable": True,
            "restart": False,
            "priority": 0,
            "debug": False,
            "state": "queued",
            "submitted_at": self.at - 30_000,
            "queued_at": self.at - 600,
            "started_at": None,
            "ended_at": None,
            "protected_until_at": None,
            "waiting_seconds": self.random.uniform(5, 9_000),
            "running_seconds": None,
            "placement": [],
            "attempt": 0,
            "preemptions": 0,
            "exit_code": None,
            "cause": None,
            "note": "",
            "argv": ["python", "train.py", "--config", "large.yaml"],
            "cwd": "/home/ada/vision",
            "env": {},
            **more,
        }
        self.jobs[job["id"]] = job
        return job

    def _queue_one(self) -> None:
        gpus = self.random.choice((1, 1, 2, 4, 8, 8, 16, 32))
        job = self._job(self.random.choice(LEAVES[:-1]), gpus, 3_600.0 * self.random.choice((0.25, 1, 8)))
        if self.random.random() < 0.2:
            job.update(state="preempted(1)", preemptions=1, attempt=1, cause="preempted")

    # -- answers ----------------------------------------------------------------------------------------

    def _aged(self) -> dict[str, float]:
        now = time.time()
        self.at = self.at if self.silent else now
        return {"as_of": self.at - self.age, "age_seconds": now - self.at + self.age}

    def touch(self) -> None:
        """Publish a new version."""
        with self.changed:
            self.version += 1
            self.changed.notify_all()

    def status(self) -> dict[str, Any]:
        healthy = [node for node in self.nodes if node["state"] != "down"]
        devices = [device for node in healthy for device in node["devices"]]
        busy = [device for device in devices if device["job"]]
        unallocated = sum(device["state"] == "unallocated" for device in busy)
        running = {device["job"] for device in busy}
        return {
            "schema": "divvy.status/1",
            **self._aged(),
            "version": self.version,
            "policy": "budget",
            "totals": {
                "gpus": len(devices),
                "used": len(busy),
                "allocated": len(busy) - unallocated,
                "unallocated": unallocated,
                "free": sum(node["free"] for node in healthy),
                "queued": len(self._waiting()),
                "running": len(running),
            },
            "nodes": self.nodes,
            "accounts": self.accounts(),
        }

    def accounts(self) -> list[dict[str, Any]]:
        total = sum(node["gpus"] for node in self.nodes if node["state"] != "down")
        effective: dict[str, float] = {"": 1.0}
        rows = []
        for path, _, leaf, owners, rank, balance, _ in ACCOUNTS:
            parent = path.rpartition(".")[0]
            effective[path] = effective[parent] * self.shares[path] / 100
            inside = [
                device
                for node in self.nodes
                for device in node["devices"]
                if device["account"] and f"{device['account']}.".startswith(f"{path}.")
            ]
            waiting = [job for job in self._waiting() if f"{job['account']}.".startswith(f"{path}.")]
            owed = effective[path] * total * 24 * 7
            rows.append(
                {
                    "path": path,
                    "parent": parent,
                    "leaf": leaf,
                    "share": self.shares[path],
                    "effective_share": effective[path],
                    "owners": owners,
                    "rank": rank,
                    "balance": balance,
                    "floor": round(0.7 * effective[path] * total, 2) if leaf else None,
                    "held": sum(device["state"] != "unallocated" for device in inside),
                    "unallocated": sum(device["state"] == "unallocated" for device in inside),
                    "waiting": len(waiting),
                    "waiting_gpus": sum(job["gpus"] for job in waiting),
                    "entitlement_gpu_hours": round(owed, 1),
                    "usage_gpu_hours": round(owed * balance, 1),
                }
            )
        return rows

    def _waiting(self) -> list[dict[str, Any]]:
        order = {row[0]: row[4] if row[4] is not None else 9 for row in ACCOUNTS}
        waiting = [job for job in self.jobs.values() if job["state"].startswith(("queued", "preempted("))]
        return sorted(waiting, key=lambda job: (order[job["account"]], job["id"]))

    def queue(self, account: str = "", author: str = "", limit: int = 1_000) -> dict[str, Any]:
        waiting = self._waiting()
        rows = []
        for position, job in enumerate(waiting):
            first = position == 0 or waiting[position - 1]["account"] != job["account"]
            code = list(REASONS)[1 + position % 3] if first else "wait-behind"
            keys = (
                "id",
                "name",
                "account",
                "author",
                "gpus",
                "min_runtime_seconds",
                "state",
                "waiting_seconds",
            )
            rows.append(
                {
                    "position": position + 1,
                    **{key: job[key] for key in keys},
                    "reason": {"code": code, "text": REASONS[code]},
                    "ahead": [other["id"] for other in waiting[max(position - 3, 0) : position]],
                    "ahead_count": position,
                }
            )
        found = [
            row
            for row in rows
            if (not account or f"{row['account']}.".startswith(f"{account}."))
            and (not author or row["author"] == author)
        ]
        return {"schema": "divvy.queue/1", **self._aged(), "jobs": found[:limit], "total": len(found)}

    def list_jobs(
        self, state: str = "", account: str = "", author: str = "", limit: int = 100
    ) -> dict[str, Any]:
        groups = {
            "running": ("protected", "interruptible", "unallocated", "stopping"),
            "ended": ("finished", "failed", "cancelled", "preempted"),
        }
        wanted = groups.get(state, (state,) if state else ())
        found = [
            job
            for job in sorted(self.jobs.values(), key=lambda job: str(job["id"]), reverse=True)
            if (not wanted or job["state"] in wanted)
            and (not account or f"{job['account']}.".startswith(f"{account}."))
            and (not author or job["author"] == author)
        ]
        more = found[limit - 1]["id"] if len(found) > limit else None
        return {"schema": "divvy.jobs/1", **self._aged(), "jobs": found[:limit], "next": more}

    def job(self, job_id: str) -> dict[str, Any]:
        if job_id not in self.jobs:
            near = ", ".join(sorted(self.jobs)[-8:])
            raise RefusedError(404, "job-unknown", f"no job {job_id!r}", path="job", allowed=near)
        return {"schema": "divvy.job/1", **self._aged(), **self.jobs[job_id]}

    def submit(self, body: dict[str, Any]) -> dict[str, Any]:
        account = body["account"]
        if account not in LEAVES:
            raise RefusedError(
                422,
                "account-unknown",
                f"no account {account!r}",
                path="account",
                allowed=", ".join(LEAVES),
                fix="choose one of these",
            )
        largest = sum(node["gpus"] for node in self.nodes)
        if body["gpus"] > largest:
            raise RefusedError(
                422,
                "gpus-too-many",
                f"{body['gpus']} devices were asked for; the fleet has {largest}",
                path="gpus",
                allowed=f"1 to {largest}",
                fix="ask for fewer",
            )
        minimum = {"0": 0.0, "15m": 900.0, "1h": 3_600.0, "2h": 7_200.0}[body["min_runtime"]]
        job = self._job(account, body["gpus"], minimum)
        job.update(
            name=body["name"],
            author="ada",
            waiting_seconds=0.0,
            argv=body["argv"],
            cwd=body["cwd"],
            env=body["env"],
        )
        if body.get("id"):
            self.jobs[body["id"]] = self.jobs.pop(job["id"])
            job["id"] = body["id"]
        self.touch()
        return self.job(job["id"])

    def cancel(self, job_id: str) -> dict[str, Any]:
        job = self.job(job_id)
        before = job["state"]
        if before in ("finished", "cancelled"):
            raise RefusedError(409, "job-phase", f"job {job_id} is {before}", path="job")
        self.jobs[job_id].update(state="cancelled", ended_at=time.time(), cause="cancelled")
        for node in self.nodes:
            for device in node["devices"]:
                if device["job"] == job_id:
                    device.update(job=None, account=None, state="free", utilisation=0.0)
                    node["free"] += node["state"] == "up"
        self.touch()
        return {"schema": "divvy.cancel/1", "job": job_id, "state": before}

    def explain(self, job_id: str) -> dict[str, Any]:
        job = self.job(job_id)
        line = next((row for row in self.queue()["jobs"] if row["id"] == job_id), None)
        headline = line["reason"] if line else {"code": "started-free", "text": "started on free devices"}
        account = next(row for row in self.accounts() if row["path"] == job["account"])
        ahead = [] if line is None else [self.jobs[name] for name in line["ahead"]]
        return {
            "schema": "divvy.explain/1",
            **self._aged(),
            "job": job_id,
            "state": job["state"],
            "headline": headline,
            "reasons": [headline, {"code": "wait-capacity", "text": REASONS["wait-capacity"]}],
            "account": account,
            "ahead": [
                {"id": j["id"], "account": j["account"], "gpus": j["gpus"], "why": "its account is owed more"}
                for j in ahead
            ],
            "ahead_count": 0 if line is None else line["ahead_count"],
            "numbers": {
                "needed": job["gpus"],
                "free": 3,
                "reclaimable": 4,
                "protected": 21,
                "balance": 0.873,
            },
            "start": None,
            "help": [
                "ask for 3 devices or fewer: it would start now",
                "protection of j00004 (8 devices) ends in 22m",
            ],
            "history": [
                {"at": job["submitted_at"], "event": "submitted", "text": f"by {job['author']}"},
                {
                    "at": job["queued_at"],
                    "event": "queued",
                    "text": "preempted by j00007: own balance 1.31, theirs 0.62",
                },
            ],
        }

    def log(self, stream: str, part: int) -> bytes:
        if stream == "stderr":
            return b"warning: no GPU found, using 2 CPU slots\n" if part == 0 else b""
        return f"step {part}: loss {2.5 / (part + 1):.3f} \u00e9\u20ac\n".encode()

    def budget(self) -> dict[str, Any]:
        accounts: dict[str, Any] = {}
        for path, _, _, owners, *_ in ACCOUNTS:
            level = accounts
            *above, name = path.split(".")
            for step in above:
                level = level[step]
            level[name] = {"share": self.shares[path], **({"owners": owners} if owners else {})}
        return {
            "schema": "divvy.budget/1",
            **self._aged(),
            "version": self.budget_version,
            "document": {
                "policy": {"lookback": "7d", "floor": 0.7, "max_min_runtime": "8h"},
                "accounts": accounts,
            },
            "accounts": self.accounts(),
        }

    def set_share(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._check_version(body)
        if path not in self.shares:
            raise RefusedError(
                404, "account-unknown", f"no account {path!r}", path="account", allowed=", ".join(self.shares)
            )
        siblings = [p for p in self.shares if p.rpartition(".")[0] == path.rpartition(".")[0] and p != path]
        total = sum(self.shares[p] for p in siblings) + body["share"]
        if total > 100:
            raise RefusedError(
                422,
                "share-sum",
                f"the shares would sum to {total:g}",
                path=f"accounts.{path.rpartition('.')[0]}",
                allowed="at most 100",
                fix=f"lower them by {total - 100:g}",
            )
        change = {"path": f"accounts.{path}.share", "from": self.shares[path], "to": body["share"]}
        self.shares[path] = body["share"]
        return self._record(body["reason"], [change])

    def put_budget(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check_version(body)
        return self._record(body["reason"], [{"path": "policy.floor", "from": 0.7, "to": 0.8}])

    def _check_version(self, body: dict[str, Any]) -> None:
        if body["version"] != self.budget_version:
            refusal = RefusedError(
                409,
                "budget-stale",
                f"the budget is at version {self.budget_version}, the change was made from {body['version']}",
                path="version",
                fix="look at what changed, then change again",
            )
            refusal.document["version"] = self.budget_version
            raise refusal

    def _record(self, reason: str, changes: list[dict[str, Any]]) -> dict[str, Any]:
        self.budget_version += 1
        entry = {"version": self.budget_version, "at": time.time(), "author": "ada", "reason": reason}
        self.versions.insert(0, {**entry, "changes": changes})
        self.touch()
        return {
            "schema": "divvy.budget.change/1",
            "version": self.budget_version,
            "pending": False,
            "changes": changes,
        }

    def history(self) -> dict[str, Any]:
        return {"schema": "divvy.budget.history/1", **self._aged(), "versions": self.versions}

    def list_tokens(self) -> dict[str, Any]:
        return {"schema": "divvy.tokens/1", **self._aged(), "tokens": list(self.tokens.values())}

    def statement(
        self, account: str = "", start: float = 0, end: float = 0, *, hours: bool = False
    ) -> dict[str, Any]:
        now = time.time()
        end = end or now
        start = start or end - 7 * 86_400
        count = max(int((end - start) // 3_600), 1)
        rows = []
        for view in self.accounts():
            if account and not f"{view['path']}.".startswith(f"{account}."):
                continue
            shape = random.Random(view["path"])
            hourly = []
            capacity = 40.0
            for hour in range(count):
                demand = capacity * view["effective_share"] * (1.2 + 0.6 * shape.uniform(-1, 1))
                owed = min(capacity * view["effective_share"], demand)
                delivered = owed * min(1.1, shape.uniform(0.86, 1.12))
                hourly.append(
                    {
                        "at": start + hour * 3_600,
                        "share": view["effective_share"],
                        "capacity": capacity,
                        "demand": demand,
                        "owed": owed,
                        "delivered": delivered,
                        "unallocated": shape.uniform(0, 1),
                        "protected": 0.5 * delivered,
                        "lost": 0.0,
                        "carried": owed - delivered,
                        "adjustments": 0.0,
                        "ledger": {"first": 10 + hour, "last": 12 + hour, "count": 3, "ids": None},
                    }
                )
            sums = {key: sum(h[key] for h in hourly) for key in _SUMMED}
            capped = sum(min(h["owed"], h["delivered"]) for h in hourly)
            rows.append(
                {
                    "account": view["path"],
                    "leaf": True,
                    "share": view["effective_share"],
                    "owed_as_one_gpu_hours": sums["owed"],
                    **{f"{key}_gpu_hours": value for key, value in sums.items()},
                    "delivered_over_owed": min(sums["delivered"] / sums["owed"], 1.0),
                    "delivered_over_owed_hourly": capped / sums["owed"],
                    "declared_gpu_hours": 100.0,
                    "declared_used_gpu_hours": 81.0,
                    "charged": int(sums["delivered"] * 3_600_000),
                    "charged_gpu_hours": sums["delivered"],
                    "adjustments": 0,
                    "adjustments_gpu_hours": 0.0,
                    "entries": [],
                    "running": [],
                    "hours": hourly if hours else None,
                }
            )
        totals = {
            name: sum(row[name] for row in rows)
            for name in (*(f"{key}_gpu_hours" for key in _SUMMED), "charged", "adjustments")
        }
        ratios = {"delivered_over_owed": 0.97, "delivered_over_owed_hourly": 0.93}
        return {
            "schema": "divvy.statement/1",
            **self._aged(),
            "from_at": start,
            "to_at": end,
            "account": account,
            "totals": totals | ratios,
            "rows": rows,
            "notes": [],
        }

    def drain(self, name: str, reason: str, *, undo: bool) -> dict[str, Any]:
        node = next((n for n in self.nodes if n["name"] == name), None)
        if node is None:
            names = ", ".join(n["name"] for n in self.nodes)
            raise RefusedError(404, "node-unknown", f"no node {name!r}", path="node", allowed=names)
        node.update(state="up" if undo else "draining", cause="" if undo else reason)
        self.touch()
        told = {"schema": "divvy.drain/1", "node": name, "state": node["state"], "reason": node["cause"]}
        return {**told, "from_at": None, "until_at": None}

    def create_token(self, body: dict[str, Any]) -> dict[str, Any]:
        name = f"t{len(self.tokens) + 1:03d}"
        self.tokens[name] = {
            "id": name,
            "user": body["user"],
            "role": body["role"],
            "accounts": body["accounts"],
            "label": body["label"],
            "created_at": time.time(),
            "created_by": "ada",
            "expires_at": time.time() + 86_400 if body.get("expires_in") else None,
            "last_used_at": None,
        }
        return {"schema": "divvy.token/1", **self.tokens[name], "token": "dvy_secret-shown-once"}
