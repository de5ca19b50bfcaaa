"""A repository of somebody who means harm: whatever of it is run leaves a mark."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

MARK = "MARK"
TOUCH = f"open({MARK!r}, 'w').close()"
LOOP = f"""\
import os, torch
{TOUCH}
exec({TOUCH!r})
os.system("touch {MARK}")
__import__("pathlib").Path({MARK!r}).touch()
rate = eval({TOUCH!r})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
"""
"""A training loop that would leave a mark in many ways, and in which there is something to find."""

CELLS = [
    f"!touch {MARK}",
    f"%run -i {MARK}.py",
    f"%%bash\ntouch {MARK}",
    f"get_ipython().system('touch {MARK}')",
    f"%%python\n{TOUCH}",
    LOOP,
]
SHADOWS = ("ast", "json", "tomllib", "typing", "difflib", "dataclasses", "torch", "instep_plugin")
"""Modules that a check imports, or might: here they are somebody else's."""
NAMES = (
    "a\nb.py",
    "\x1b]0;owned\x07\x1b[2J.py",
    "<script>hurt=1<script>.py",
    "$(touch MARK);touch MARK;.py",
    "`touch MARK`.py",
    "x%0A::error file=x::owned.py",
    "\n::error::owned.py",
    "'; DROP TABLE \"x.py",
    "\u202egnp.py",
)


class Payload:
    """What unpickling it runs."""

    def __reduce__(self) -> tuple[object, ...]:
        return (exec, (TOUCH,))


def plant(tree: Path) -> None:
    """Write the repository."""
    for shadow in SHADOWS:
        (tree / f"{shadow}.py").write_text(f"{TOUCH}\n")
    for name in ("train.py", "setup.py", "conftest.py", "sitecustomize.py", *NAMES):
        (tree / name).write_text(LOOP)
    (tree / "importing.py").write_text(f"from instep_plugin import *\nimport train\n{LOOP}")
    (tree / "notebook.ipynb").write_text(json.dumps(_notebook()))
    (tree / "guide.md").write_text(f"# Guide\n\n```python\n{LOOP}```\n\n    >>> {TOUCH}\n")
    (tree / "coded.py").write_bytes(b"# -*- coding: rot13 -*-\n" + LOOP.encode())
    (tree / "pyproject.toml").write_text(
        '[tool.instep]\nselect = ["all"]\nbaseline = "baseline.json"\n'
        f'exclude = ["$(touch {MARK})"]\n[tool.pytest.ini_options]\naddopts = "-p instep_plugin"\n'
    )
    known = {"path": f"$(touch {MARK})", "code": TOUCH, "text": f"{TOUCH}", "occurrence": 0}
    (tree / "baseline.json").write_text(json.dumps({"version": 1, "findings": [known]}))
    _links(tree)


def _links(tree: Path) -> None:
    (tree / "loop").symlink_to(tree, target_is_directory=True)
    (tree / "zero.py").symlink_to("/dev/zero")
    (tree / "sub").mkdir()
    (tree / "sub" / ".gitignore").symlink_to("/dev/zero")
    (tree / "sub" / "train.py").write_text(f"import endless\n{LOOP}")
    (tree / "sub" / "endless.py").symlink_to("/dev/zero")


def poison(cache: Path) -> int:
    """Put payloads into every entry of a cache; return how many there were."""
    entries = list(cache.rglob("*.json"))
    for number, entry in enumerate(entries):
        entry.write_bytes(pickle.dumps(Payload()) if number % 2 else b"exec\n" + TOUCH.encode())
    return len(entries)


def _notebook() -> dict[str, object]:
    cells = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": [
            {"output_type": "display_data", "data": {"text/html": f"<script>{MARK}</script>"}}
        ], "execution_count": None}
        for text in CELLS
    ]  # fmt: skip
    kernel = {"name": "x", "display_name": "x", "argv": ["touch", MARK]}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
