"""The command line, run by the tour the way a user would run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from examples.tour.stop import TourError


def instep(folder: Path, *words: str, expect: int) -> str:
    """Run a command of instep in a folder, show both, and return what it printed."""
    print(f"$ instep {' '.join(words)}\n", flush=True)
    shown = {"COLUMNS": str(shutil.get_terminal_size((100, 24)).columns)}
    if sys.stdout.isatty():
        shown["FORCE_COLOR"] = "1"  # its output passes through this process
    done = subprocess.run(  # noqa: S603  # our own command, on our own files
        [sys.executable, "-m", "instep", *words],
        cwd=folder,
        env=os.environ | shown,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        check=False,
    )
    print(done.stdout)
    if done.returncode != expect:
        raise TourError(f"`instep {' '.join(words)}` exits with {done.returncode}, not {expect}")
    return done.stdout
