"""Beginning a run: look up what it executes, make its cgroups, write its order, start its shim."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from divvy.adapters.local.cgroup import Containment
from divvy.adapters.local.devices import Assignment, Book
from divvy.adapters.local.order import Treatment, limits, order_document, run_key, slot_variables
from divvy.adapters.local.runs import Shelf
from divvy.control.launch import LaunchSpec
from divvy.control.ports import Launch
from divvy.errors import NotFoundError


class SubmissionError(Exception):
    """The job cannot run as it was submitted, today or tomorrow."""


class MachineError(Exception):
    """This machine cannot start the run now."""


@dataclass(frozen=True, slots=True)
class Starter:
    """Begins runs.

    Attributes:
        details: Returns what a job runs; raises `NotFoundError` where there is no such thing.
        containment: What cgroups can do here.
        book: Who holds which device.
        treatment: How every run is treated.
        notify: FIFO on which shims report.
    """

    details: Callable[[str], LaunchSpec]
    containment: Containment
    book: Book
    treatment: Treatment
    notify: str

    def start(self, launch: Launch, assignment: Assignment, shelf: Shelf) -> tuple[int, int]:
        """Start the shim of a run; return (line to it, its process id).

        Raises:
            SubmissionError: If the fault lies in what was submitted.
            MachineError: If it lies in this machine.
        """
        detail = self._look_up(launch.job)
        faults = detail.faults()
        if faults:
            raise SubmissionError("; ".join(str(fault) for fault in faults))
        devices = self.book.devices(assignment)
        variables = slot_variables(
            launch,
            assignment,
            devices,
            contained="devices" in self.containment.base,
            hide_gpus=self.treatment.hide_gpus,
        )
        try:
            group = self.containment.create(
                run_key(launch.job, launch.attempt), limits(detail, assignment, self.book, self.treatment)
            )
            order = order_document(
                launch,
                detail,
                assignment,
                group,
                variables,
                secrets.token_hex(16),
                notify=self.notify,
                switch=self.treatment.switch_user,
                resumed=shelf.resumes(),
            )
            return shelf.begin(order)
        except OSError as error:
            raise MachineError(f"{error.filename or shelf.path}: {error.strerror}") from error

    def _look_up(self, job: str) -> LaunchSpec:
        try:
            return self.details(job)
        except NotFoundError as error:
            raise SubmissionError(f"nothing is known of what it runs: {error.title}") from error
        except Exception as error:
            # Whatever the store suffers from, the job is not at fault and must not be lost.
            raise MachineError(f"what it runs cannot be looked up: {error}") from error
