"""The loop process: the only writer of the fleet's state."""

from __future__ import annotations

import signal

from divvy.bootstrap import EngineMaker, collector, create_engine, live_loop
from divvy.service.child import LIFELINE, Orders, Parent, run_child


def run(orders: Orders, parent: Parent, make_engine: EngineMaker = create_engine) -> None:
    """Run the scheduler loop until the parent is gone or a signal asks for the end."""

    def loaded() -> None:
        collector.settle()
        parent.tell(ready=True)

    collector.calm()
    with live_loop(orders.settings, make_engine, LIFELINE, first_pass=loaded) as (
        driver,
        waiter,
    ):
        waiter.stop_on(signal.SIGTERM, signal.SIGINT)
        driver.run()


if __name__ == "__main__":
    run_child("loop", run)
