"""A process under guard: the interpreter writes down what it runs, imports, starts and writes.

The hook is installed before anything of ours is imported (as `sitecustomize`), sees every way into
the operating system that Python audits, and cannot be taken away.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import instep

SOURCE = str(Path(instep.__file__).parents[1])

HOOK = """
import os, sys

TREE, LOG = os.environ["GUARDED_TREE"], os.environ["GUARDED_LOG"]
CALLS = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.",
         "pickle.", "ctypes.", "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser.")
log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def inside(path):
    path = os.fsdecode(path) if isinstance(path, (str, bytes)) else ""
    if path.startswith("<") and path.endswith(">"):
        return False  # made by a module of Python, such as `dataclasses`, and in no file
    return os.path.abspath(path).startswith(TREE + os.sep)


def hook(event, given):
    said = None
    if event == "exec" and inside(getattr(given[0], "co_filename", "")):
        said = given[0].co_filename
    elif event == "import" and given[1] and inside(given[1]):
        said = given[1]
    elif event.startswith(CALLS):
        said = repr(given)
        if event == "socket.__new__" and given[1] == 1:
            return  # a pipe between our own processes
    elif event == "open" and isinstance(given[0], (str, bytes)):
        if isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_RDWR):
            event, said = "write", os.fsdecode(given[0])
    if said is not None:
        os.write(log, (event + "\\t" + ascii(said) + "\\n").encode())


sys.addaudithook(hook)
"""


class Guard:
    """Runs Python in a folder, and tells what it did there."""

    def __init__(self, tree: Path, aside: Path) -> None:
        self.tree, self.aside = tree, aside
        self.log = aside / "log"
        (aside / "hook").mkdir()
        (aside / "hook" / "sitecustomize.py").write_text(HOOK)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `python WORDS` in the tree."""
        self.log.write_text("")
        path = os.pathsep.join([str(self.aside / "hook"), SOURCE])
        environ = {
            **os.environ, "PYTHONPATH": path, "GUARDED_TREE": str(self.tree),
            "GUARDED_LOG": str(self.log), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, *words], cwd=self.tree, env=environ, capture_output=True, text=True,
            timeout=120, check=False, encoding="utf-8",
        )  # fmt: skip

    def instep(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command line of instep."""
        return self.run("-m", "instep", *words)

    def seen(self) -> list[list[str]]:
        """Everything of note, as pairs of an event and what it was about."""
        return [line.split("\t", 1) for line in self.log.read_text().splitlines()]

    def written(self) -> set[str]:
        """The files that were opened to write, from the tree's point of view."""
        paths = (ast.literal_eval(said) for event, said in self.seen() if event == "write")
        return {os.path.relpath(self.tree / path, self.tree) for path in paths}

    def done(self) -> list[list[str]]:
        """Everything of note but writing."""
        return [each for each in self.seen() if each[0] != "write"]
