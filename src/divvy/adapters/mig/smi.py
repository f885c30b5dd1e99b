"""The port over nvidia-smi: build the command, run it, parse the answer."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from divvy.adapters.mig.port import Present, refused
from divvy.errors import DivvyError
from divvy.fleet.mig.parse.instances import parse_lgi, read_act
from divvy.fleet.mig.parse.profiles import learn_sku
from divvy.fleet.mig.profile import Sku

_SECONDS: Final = 120

#: Runs a command and returns (exit code, everything it printed).
Run = Callable[[Sequence[str]], tuple[int, str]]


def run_command(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a command and return its exit code and output.

    Raises:
        EngineError: If it is not there or does not end.
    """
    try:
        done = subprocess.run(list(arguments), capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError as error:
        raise refused(arguments[0], "not found", "install the driver, or try --emulate STATE.json") from error
    except OSError as error:
        raise refused(arguments[0], error.strerror or str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise refused(" ".join(arguments), f"no answer within {_SECONDS} s") from error
    return done.returncode, done.stdout + done.stderr


class SmiDriver:
    """Cuts through ``nvidia-smi``.

    Args:
        run: How commands are run.
        command: The program.
    """

    def __init__(self, run: Run = run_command, command: str = "nvidia-smi") -> None:
        self._run = run
        self._command = command

    def _ask(self, *arguments: str) -> str:
        code, text = self._run([self._command, *arguments])
        if code != 0:
            raise refused(f"{self._command} {' '.join(arguments)}", text.strip() or f"exit code {code}")
        return text

    def enabled(self, gpu: int) -> bool:
        """Return whether MIG mode is on."""
        text = self._ask("-i", str(gpu), "--query-gpu=mig.mode.current", "--format=csv,noheader")
        return text.strip() == "Enabled"

    def enable(self, gpu: int) -> None:
        """Turn MIG mode on."""
        text = self._ask("-i", str(gpu), "-mig", "1")
        if "pending" in text.lower() or "In use" in text:
            raise refused(
                f"MIG mode of GPU {gpu}", "In use by another client", "the GPU must be idle for this"
            )

    def instances(self) -> list[Present]:
        """Return every GPU instance."""
        code, text = self._run([self._command, "mig", "-lgi"])
        if code != 0 and "No GPU instances found" not in text:
            raise refused("nvidia-smi mig -lgi", text.strip() or f"exit code {code}")
        return [Present(i.gpu, i.profile, i.instance_id, i.start, i.size) for i in parse_lgi(text, "-lgi")]

    def create(self, gpu: int, profile: str, start: int) -> int:
        """Create an instance at a start, with its compute instance."""
        text = self._ask("mig", "-i", str(gpu), "-cgi", f"{profile}:{start}", "-C")
        for line in text.splitlines():
            act = read_act(line)
            if act is not None and act.succeeded and act.target == "gpu":
                return act.instance_id
        raise refused(f"creating {profile}@{start} on GPU {gpu}", text.strip() or "no answer")

    def destroy(self, gpu: int, instance_id: int) -> None:
        """Destroy an instance with its compute instances."""
        try:
            self._ask("mig", "-i", str(gpu), "-gi", str(instance_id), "-dci")
        except DivvyError as error:
            if "Not Found" not in str(error):
                raise
        self._ask("mig", "-i", str(gpu), "-gi", str(instance_id), "-dgi")

    def sku(self, gpu: int) -> Sku:
        """Return what the GPU can be cut into, learned from ``-lgip`` and ``-lgipp``."""
        lgip = self._ask("mig", "-i", str(gpu), "-lgip")
        lgipp = self._ask("mig", "-i", str(gpu), "-lgipp")
        name = self._ask("-i", str(gpu), "--query-gpu=name", "--format=csv,noheader").strip()
        return learn_sku(name, lgip, lgipp, gpu=gpu)
