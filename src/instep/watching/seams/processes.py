"""Processes that a job starts by itself: nobody watches there, and that has to be said."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import subprocess
import sys
from multiprocessing import process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from instep.watching.seam import Seam

_TORCH = str(Path(torch.__file__).parent)
_MANAGERS = str(Path(process.__file__).with_name("managers.py"))
_OWN = (f"{_TORCH}/utils/data/", f"{_TORCH}/_inductor/", _MANAGERS)
"""Who starts processes that train nothing: loaders, compilers, servers of shared objects."""
_MULTIPROCESSING = (str(Path(multiprocessing.__file__).parent) + "/",)
"""Who forks for a process that was counted when it was started."""
_PROGRAMS = ("python", "torchrun", "accelerate", "deepspeed")
"""Beginnings of the names of programs that may train; most others are asked for a few words."""


def install(seam: Seam) -> None:
    """Count the processes of `multiprocessing` and torch, those that are forked, and Python's."""
    recorder = seam.recorder

    def start(original: Callable[..., Any], self: process.BaseProcess) -> Any:
        done = original(self)
        with seam.safely():
            recorder.processes += not _comes_from(_OWN)
        return done

    def fork(original: Callable[[], int]) -> int:
        child = original()
        if child:
            with seam.safely():
                recorder.processes += not _comes_from(_MULTIPROCESSING)
        else:
            seam.patches.is_open = False  # nobody would hear of what is seen there
        return child

    def run(original: Callable[..., Any], self: Any, *given: Any, **options: Any) -> None:
        original(self, *given, **options)
        with seam.safely():
            command = given[0] if given else options["args"]
            recorder.processes += may_train(command) and not _comes_from(_OWN)

    seam.patches.replace(process.BaseProcess, "start", start, in_all_threads=True)
    seam.patches.replace(subprocess.Popen, "__init__", run, in_all_threads=True)
    if hasattr(os, "fork"):
        seam.patches.replace(os, "fork", fork, in_all_threads=True)


def may_train(command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> bool:
    """Say whether a command runs a program that may train.

    >>> may_train(["/usr/bin/python3", "train.py"]), may_train("A=0 torchrun train.py")
    (True, True)
    >>> may_train(["git", "rev-parse", "HEAD"]), may_train("nvidia-smi -L | wc -l")
    (False, False)
    """
    if isinstance(command, str):
        words: Sequence[Any] = shlex.split(command, posix=False)
    else:
        words = [command] if isinstance(command, os.PathLike | bytes) else command
    return any(Path(os.fsdecode(word)).name.startswith(_PROGRAMS) for word in words)


def _comes_from(files: tuple[str, ...]) -> bool:
    """Say whether code of these files has asked for a process, for a purpose of its own."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # `inspect` would read files
    while frame is not None:
        if frame.f_code.co_filename.startswith(files):
            return True
        frame = frame.f_back
    return False
