"""The command line. It starts without torch."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from instep import __version__
from instep.explain import nearest, page, title, topics

if TYPE_CHECKING:
    from collections.abc import Sequence

FOUND, UNKNOWN = 0, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="instep", description="Keeps PyTorch training loops in step."
    )
    parser.add_argument("--version", action="version", version=f"instep {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    explain = commands.add_parser("explain", help="read the page that an error message points to")
    explain.add_argument("topic", nargs="?", help="a page; without it, all are listed")
    options = parser.parse_args(arguments)
    return _explain(options.topic)


def _explain(topic: str | None) -> int:
    if topic is None:
        width = max(map(len, topics()))
        sys.stdout.writelines(f"{name:<{width}}  {title(name)}\n" for name in topics())
        return FOUND
    text = page(topic)
    if text is None:
        guess = nearest(topic)
        hint = f" Did you mean {guess!r}?" if guess else ""
        sys.stderr.write(
            f"instep: there is no page {topic!r}.{hint} `instep explain` lists them all.\n"
        )
        return UNKNOWN
    sys.stdout.write(text)
    return FOUND
