"""Mended files, as they are written and as they are shown."""

from __future__ import annotations

import os
import tempfile
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

from instep.check.decoding import Decoded, decode
from instep.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Sequence


def write_file(path: str, before: bytes, after: bytes) -> None:
    """Replace the content of a file at once, so that no crash leaves half of it.

    Its mode stays, and so does a link to it: the file behind the link is what changes.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    try:
        if Path(target).read_bytes() != before:
            raise _error(f"{path}: it has changed since it was read.", "run --fix again.")
        mode = Path(target).stat().st_mode & 0o7777
        handle, beside = tempfile.mkstemp(prefix=f".{name[:50]}.", suffix=".tmp", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(after)
            Path(beside).chmod(mode)
            Path(beside).replace(target)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
    except OSError as error:
        fix = "check that you may write it and its folder, or look at the fixes with --diff."
        what = f"{path}: it cannot be written ({error.strerror or error})."
        raise _error(what, fix) from error


def refuse_link(path: str, named: Sequence[str]) -> None:
    """Refuse a link that leads out of all that was named: what is there is not to be mended.

    A link in somebody else's repository may lead anywhere.
    """
    if not Path(path).is_symlink():
        return
    real = os.path.realpath(path)
    for each in named:
        home = os.path.realpath(each)
        if os.path.abspath(each) == os.path.abspath(path) or real.startswith(home + os.sep):  # noqa: PTH100
            return
    what = f"{path}: it is a link to {real}, which is in none of the folders that were named."
    raise _error(what, "name the link, or that file, to have it mended.")


def _error(what: str, fix: str) -> CheckError:
    why = "--fix changes files in place; this one is as it was."
    return CheckError(what, why=why, fix=fix, more="checking")


def diff(path: str, before: bytes, after: bytes) -> str:
    r"""Return what changes in a file as a unified diff.

    >>> print(diff("a.py", b"x = 1\n", b"x = 2\n"), end="")
    --- a.py
    +++ a.py
    @@ -1 +1 @@
    -x = 1
    +x = 2
    """
    old, new = (_lines(data) for data in (before, after))
    return "".join(
        row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n"
        for row in unified_diff(old, new, path, path)
    )


def _lines(data: bytes) -> list[str]:
    decoded = decode(data)
    text = decoded.whole if isinstance(decoded, Decoded) else data.decode("utf-8", "replace")
    return text.splitlines(keepends=True) if "\r" in text else _cut(text)


def _cut(text: str) -> list[str]:
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
