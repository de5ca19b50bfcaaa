"""Writing a report so that nobody ever reads half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def put(path: str | Path, text: str) -> None:
    """Write a file whole, or leave what was there; OSError if it cannot be written."""
    target = Path(path)
    data = text.encode()
    if target.exists() and not target.is_file():
        target.write_bytes(data)  # a pipe or a terminal cannot be replaced
        return
    home = target.resolve()
    handle, spare = tempfile.mkstemp(prefix=f".{home.name[:64]}.", dir=home.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(spare).chmod(_mode(home))
        Path(spare).replace(home)
    except BaseException:
        Path(spare).unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """Return the permissions a plain `open` would have left the file with."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0o022)
    os.umask(mask)
    return 0o666 & ~mask
