"""Which files to check: those named, and in folders those that git does not ignore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from instep.check.gitignore import Patterns
from instep.check.sources import STDIN, SUFFIXES
from instep.errors import CheckError
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NOT_OURS = {"site-packages", "node_modules", "__pycache__", "__pypackages__"}


@dataclass(frozen=True)
class Ignore:
    """Patterns that speak of what lies in a folder."""

    folder: str
    """Absolute."""
    patterns: Patterns

    @classmethod
    def globs(cls, folder: str | Path, globs: Sequence[str]) -> Ignore:
        """Make it of globs that a user wrote, with `folder` as where they are anchored."""
        return cls(os.path.abspath(folder), Patterns.of(globs))  # noqa: PTH100  # no links followed

    def verdict(self, path: str, *, is_folder: bool) -> bool | None:
        """Say whether an absolute path is out, in, or not spoken of."""
        if not path.startswith(self.folder.rstrip(os.sep) + os.sep):
            return None
        inner = path[len(self.folder.rstrip(os.sep)) + 1 :]
        return self.patterns.verdict(inner.replace(os.sep, "/"), is_folder=is_folder)

    def covers(self, path: str) -> bool:
        """Say whether a path, or a folder above it, is out."""
        if self.verdict(path, is_folder=False):
            return True
        while (path := os.path.dirname(path)) and len(path) > len(self.folder):  # noqa: PTH120
            if self.verdict(path, is_folder=True):
                return True
        return False


def discover(paths: Sequence[str | Path] = (".",), *, exclude: Sequence[Ignore] = ()) -> list[Path]:
    """Return the files to check, each once, in an order that is always the same.

    A file that is named is checked, whatever git ignores; only `exclude` keeps it out. A folder
    is searched for Python, notebooks and text files. "-" stands for standard input.
    """
    found: dict[str, Path] = {}
    links: set[str] = set()
    for given in paths:
        path = Path(given)
        if str(given) == STDIN:
            found.setdefault(STDIN, path)
        elif path.is_dir():
            for absolute, file, is_link in _walk(path, exclude):
                found.setdefault(absolute, file)
                if is_link:
                    links.add(absolute)
        elif os.path.lexists(path):
            absolute = _absolute(path)
            if not any(ignore.covers(absolute) for ignore in exclude):
                found.setdefault(absolute, path)
                if path.is_symlink():
                    links.add(absolute)
        else:
            raise CheckError(
                f"there is no {str(given)!r}.",
                why="every path on the command line has to be a file or a folder.",
                fix="check its spelling and the folder that you are in.",
                more="paths",
            )
    return _without_links(found, links)


def _absolute(path: str | Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100  # Path.resolve would follow links


def _without_links(found: dict[str, Path], links: set[str]) -> list[Path]:
    """Drop links to files that are found under their own names too."""
    if not links:
        return list(found.values())
    real = {os.path.realpath(absolute) for absolute in found if absolute not in links}
    return [
        path
        for absolute, path in found.items()
        if absolute not in links or os.path.realpath(absolute) not in real
    ]


def _walk(root: Path, exclude: Sequence[Ignore]) -> Iterator[tuple[str, Path, bool]]:
    """Give the files of a folder: where each is, as it is shown, and whether it is a link."""
    absolute = _absolute(root)
    pending = [(root, absolute, [*exclude], _above(absolute))]
    while pending:
        folder, where, users, git = pending.pop()
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            continue  # a folder that may not be read is passed over, as git does
        git = [*git, *_read(where, ".gitignore")]
        folders = []
        for entry in entries:
            full = os.path.join(where, entry.name)  # noqa: PTH118  # one call per file of a tree
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and os.path.splitext(entry.name)[1].lower() not in SUFFIXES:  # noqa: PTH122
                continue
            if entry.name.startswith(".") or (is_folder and _foreign(entry.name, full)):
                continue
            if any(ignore.verdict(full, is_folder=is_folder) for ignore in users):
                continue
            if _ignored(git, full, is_folder=is_folder):
                continue
            if is_folder:
                folders.append((folder / entry.name, full, users, git))
            elif entry.is_file():
                yield full, folder / entry.name, entry.is_symlink()
        pending.extend(reversed(folders))


def is_out(path: str, exclude: Sequence[Ignore]) -> bool:
    """Say whether an absolute path is excluded or, as git sees it, ignored."""
    if any(ignore.covers(path) for ignore in exclude):
        return True
    folder = os.path.dirname(path)  # noqa: PTH120
    git = [*_above(folder), *_read(folder, ".gitignore")]
    if _ignored(git, path, is_folder=False):
        return True
    return any(_ignored(git, str(above), is_folder=True) for above in Path(path).parents)


def _ignored(git: list[Ignore], path: str, *, is_folder: bool) -> bool:
    """Ask the nearest .gitignore first; the first that speaks of the path decides."""
    for ignore in reversed(git):
        verdict = ignore.verdict(path, is_folder=is_folder)
        if verdict is not None:
            return verdict
    return False


def _foreign(name: str, path: str) -> bool:
    """Say whether a folder holds other people's code: an environment or installed packages."""
    return name in _NOT_OURS or os.path.exists(os.path.join(path, "pyvenv.cfg"))  # noqa: PTH110, PTH118


def _above(folder: str) -> list[Ignore]:
    """Return what the repository around a folder ignores, from its root down to the folder."""
    found: list[Ignore] = []
    for parent in (Path(folder), *Path(folder).parents):
        if str(parent) != folder:
            found = [*_read(str(parent), ".gitignore"), *found]
        if (parent / ".git").exists():
            return [*_read(str(parent), ".git/info/exclude"), *found]
    return []  # in no repository: nothing above counts


def _read(folder: str, name: str) -> list[Ignore]:
    file = Path(folder) / name
    try:
        data = file.read_bytes() if file.is_file() else None  # a device would never end
    except OSError:
        return []
    if data is None:
        return []
    return [Ignore(folder, Patterns.of_text(data.decode("utf-8", "surrogateescape")))]
