"""The sample job_submit.lua, with the settings of a site in it."""

from __future__ import annotations

import json
from pathlib import Path

from divvy.adapters.slurm.settings import SlurmSettings
from divvy.units import SECOND


def job_submit_lua(settings: SlurmSettings) -> str:
    """Return the script that holds managed jobs as long as the heartbeat is fresh."""
    text = Path(__file__).with_name("job_submit.lua").read_text(encoding="utf-8")
    names = ", ".join(f"[{json.dumps(name)}] = true" for name in settings.partitions)
    return (
        text.replace("@HEARTBEAT@", settings.heartbeat.replace("\\", "\\\\").replace('"', '\\"'))
        .replace("@FAIL_OPEN_AFTER_SECONDS@", str(settings.fail_open_after // SECOND))
        .replace("@PARTITIONS@", names)
    )
