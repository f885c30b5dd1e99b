"""Ray over HTTP: the Job Submission API and the State API of its dashboard. Divvy itself needs no Ray."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import httpx

from divvy.adapters.ray.record import OVER, Command, Forget, RayJob, RayNode, RayView, Submit
from divvy.errors import UnavailableError

_TAIL_LINES: Final = 5_000
_MOST: Final = 10_000


class RayApi:
    """One Ray cluster.

    Args:
        address: URL of its dashboard.
        owner: How the submission ids of this control plane begin.
        timeout_seconds: Longest time that a request may take.
    """

    def __init__(self, address: str, owner: str, timeout_seconds: float = 20) -> None:
        self._owner = owner
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every look
        self._http = httpx.Client(base_url=address, timeout=timeout_seconds, trust_env=False)
        self._logs: dict[str, str] = {}
        self.watched: frozenset[str] = frozenset()
        """Submission ids of the runs that are not over yet, as far as the engine knows."""

    def read(self, now: int, accounting: frozenset[str]) -> RayView:
        """Return what Ray shows.

        Raises:
            UnavailableError: If it does not answer, or not with what can be understood.
        """
        watched = self.watched | accounting
        try:
            session = str(self._get("/api/version")["session_name"])
            nodes = name_nodes(self._state("nodes"))
            listed = self._get("/api/jobs/")
            ours = [job for job in listed if str(job.get("submission_id") or "").startswith(self._owner)]
            began = self._began() if any(job["submission_id"] in watched for job in ours) else {}
            jobs = {job["submission_id"]: self._job(job, began, watched) for job in ours}
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UnavailableError.one("ray-answer", f"what Ray answers cannot be read: {error!r}") from error
        self._logs = {run: log for run, log in self._logs.items() if run in watched}
        return RayView(now, session, nodes, jobs)

    def carry_out(self, command: Command) -> str:
        """Do one thing; return what went wrong, empty where nothing did.

        Raises:
            UnavailableError: If Ray does not answer.
        """
        path = f"/api/jobs/{quote(command.run, safe='')}"
        if isinstance(command, Submit):
            answer = self._ask("POST", "/api/jobs/", command.body)
            there = "already exists" in answer.text  # an earlier request got through after all
            return "" if answer.is_success or there else answer.text[-500:]
        answer = (
            self._ask("DELETE", path) if isinstance(command, Forget) else self._ask("POST", f"{path}/stop")
        )
        return "" if answer.is_success or answer.status_code == httpx.codes.NOT_FOUND else answer.text[-500:]

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    # -- inside ---------------------------------------------------------------------------------------

    def _job(self, job: dict[str, Any], began: dict[str, int], watched: frozenset[str]) -> RayJob:
        run = str(job["submission_id"])
        over = job["status"] in OVER
        return RayJob(
            run,
            str(job["status"]),
            began.get(run, 0),
            int(job["end_time"] or 0),
            job.get("driver_exit_code"),
            str(job.get("error_type") or ""),
            str(job.get("message") or ""),
            self._log(run, job) if over and run in watched else None,
        )

    def _log(self, run: str, job: dict[str, Any]) -> str:
        """Return the end of what a run printed; nothing where Ray no longer has it."""
        if run not in self._logs:
            place = {"node_id": str(job.get("driver_node_id") or ""), "filename": f"job-driver-{run}.log"}
            answer = self._ask("GET", "/api/v0/logs/file", query={**place, "lines": str(_TAIL_LINES)})
            self._logs[run] = answer.text if answer.is_success else ""
        return self._logs[run]

    def _began(self) -> dict[str, int]:
        """Return since when all devices of each run are held, ms."""
        found: dict[str, int] = {}
        for group in self._state("placement_groups"):
            run, stats = str(group["name"]), group["stats"] or {}
            if run.startswith(self._owner) and group["state"] != "PENDING":
                asked = int(stats.get("creation_request_received_ns") or 0)
                took = int(stats.get("end_to_end_creation_latency_us") or 0)
                if asked and took:
                    found[run] = asked // 1_000_000 + -(-took // 1_000)
        return found

    def _state(self, kind: str, **query: str) -> list[dict[str, Any]]:
        query = {"detail": "1", "limit": str(_MOST), "timeout": "15", **query}
        result = self._get(f"/api/v0/{kind}", query)["data"]["result"]["result"]
        return [dict(each) for each in result]

    def _get(self, path: str, query: dict[str, str] | None = None) -> Any:
        answer = self._ask("GET", path, query=query)
        if not answer.is_success:
            raise UnavailableError.one(
                "ray-answer", f"Ray: {path}: {answer.status_code} {answer.text[-300:]}"
            )
        return answer.json()

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, query: dict[str, str] | None = None
    ) -> httpx.Response:
        try:
            return self._http.request(method, path, json=body, params=query)
        except httpx.HTTPError as error:
            what = f"Ray at {self._http.base_url}: {error!r}"
            raise UnavailableError.one("ray-silent", what) from error


def name_nodes(listed: Iterable[dict[str, Any]]) -> dict[str, RayNode]:
    """Return the living nodes with GPUs by name; where several have one name, by name and part of the id."""
    alive = [node for node in listed if node["state"] == "ALIVE"]
    names = [str(node["node_name"]) for node in alive]
    found: dict[str, RayNode] = {}
    for node, plain in zip(alive, names, strict=True):
        resources, labels = node["resources_total"], node.get("labels") or {}
        gpus = int(resources.get("GPU") or 0)
        if not gpus:
            continue
        kinds = [key.partition(":")[2] for key in resources if key.startswith("accelerator_type:")]
        model = str(labels.get("ray.io/accelerator-type") or next(iter(kinds), ""))
        name = plain if names.count(plain) == 1 else f"{plain}-{node['node_id'][:8]}"
        found[name] = RayNode(str(node["node_id"]), name, gpus, model)
    return found
