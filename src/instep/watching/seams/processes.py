"""Processes that a job starts by itself: nobody watches there, and that has to be said."""

from __future__ import annotations

import sys
from multiprocessing import process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from instep.watching.seam import Seam

_TORCH = str(Path(torch.__file__).parent)
_MANAGERS = str(Path(process.__file__).with_name("managers.py"))
_OWN = (f"{_TORCH}/utils/data/", f"{_TORCH}/_inductor/", _MANAGERS)
"""Who starts processes that train nothing: loaders, compilers, servers of shared objects."""


def install(seam: Seam) -> None:
    """Count the processes of `multiprocessing`, which `torch.multiprocessing` starts as well."""
    recorder = seam.recorder

    def start(original: Callable[..., Any], self: process.BaseProcess) -> Any:
        done = original(self)
        with seam.safely():
            if not _is_a_helper():
                recorder.processes += 1
        return done

    seam.patches.replace(process.BaseProcess, "start", start)


def _is_a_helper() -> bool:
    """Say whether torch or Python starts a process for a purpose of its own."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # `inspect` would read files
    while frame is not None:
        if frame.f_code.co_filename.startswith(_OWN):
            return True
        frame = frame.f_back
    return False
