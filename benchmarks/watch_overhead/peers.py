"""TrainCheck, on the same job. It lives in an environment of its own."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).parent / "script.py"
PYTHON = Path(".venv-traincheck/bin/python")
_SECONDS = 600


def traincheck(python: Path = PYTHON, rounds: int = 3) -> list[tuple[float, float]]:
    """Return the seconds of a step without it and with it, by round; nothing if it is missing."""
    collect = python.parent / "traincheck-collect"
    if not collect.exists():
        return []
    found = []
    with tempfile.TemporaryDirectory() as folder:
        script = f"{folder}/{SCRIPT.name}"  # it leaves a rewritten one beside what it is given
        shutil.copyfile(SCRIPT, script)
        for turn in range(rounds):
            traced = [str(collect), "--pyscript", script, "--models-to-track", "model"]
            traced += ["--output-dir", f"{folder}/{turn}"]
            found.append((_step([str(python), script]), _step(traced)))
    return found


def _step(command: list[str]) -> float:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS)
    said = re.search(r"STEP ([0-9.e-]+)", done.stdout + done.stderr)
    if said is None:
        raise ValueError(f"no time of a step in the output of {command[0]}")
    return float(said.group(1))
