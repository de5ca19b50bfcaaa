"""What the files around a module say of it: which torch it is written for, and its options.

They are looked at only where something hangs on them, and as text: nothing in them is run.
"""

from __future__ import annotations

import os
import re

from instep.check.execute.lengths import MOST_EVERY
from instep.trace.pattern import pattern

_MOST_BYTES = 400_000
_MOST_FILES = 60
"""Of one folder."""
_TELLS = pattern(
    r"(readme\b.*|requirements?\b.*|environment.*\.ya?ml|setup\.(py|cfg)|pyproject\.toml|pipfile"
    r"|install\.md)",
    re.IGNORECASE,
)
"""Files that tell what a project needs."""
_TORCH = pattern(
    r"\b(?:py)?torch[`*\]\"]*(?:\s+version)?\s*[:(]?\s*(?:==?|~=)?\s*`?v?(\d)\.(\d{1,2}+)(?:\.\d+)?+"
    r"(?![ \t]*(?:\+|-|–|~|/|or\b|and\b|to\b|,\s*\d))",
    re.IGNORECASE,
)
"""One version of torch, and neither a range nor the least of them."""
_OPTION = pattern(
    r"add_argument\(\s*(?:[\"'][^\"']*[\"']\s*,\s*)??[\"']--?([\w-]{5,})[\"']"
    r"(?:(?!add_argument)[^#]){0,400}?\bdefault\s*=\s*(\d+)\b(?![.\d])"
)
_SETTING = pattern(
    r"^\s*[\"']?([A-Za-z_]\w{4,})[\"']?\s*[:=]\s*(\d+)\s*,?\s*(?:#.*)?$", re.MULTILINE
)
_SETTINGS = pattern(r".*\.(py|ya?ml|json|toml|ini|cfg)")
_FOLDERS = pattern(r"\.?(config|conf|cfg|option|param|setting)\w*", re.IGNORECASE)


class Around:
    """What is known of the folders of a project, from a module's own up to its root."""

    def __init__(self) -> None:
        self._torch: dict[str, tuple[int, int] | None] = {}
        self._numbers: dict[str, dict[str, int]] = {}
        self.read: dict[str, set[str]] = {}
        """By folder: what was looked at, whose change would change what is said, and the folders
        that were searched for it."""

    def torch(self, folder: str) -> tuple[int, int] | None:
        """Return the newest torch that the files of a folder name, if each names one."""
        if folder not in self._torch:
            found = [
                (int(match[1]), int(match[2]))
                for path in self._files(folder, _TELLS)
                for match in _TORCH.finditer(_text(path))
            ]
            self._torch[folder] = max(found, default=None)
        return self._torch[folder]

    def number(self, folder: str, name: str) -> int:
        """Return what an option of this name is unless somebody asks for another; 0: nobody says.

        Where two say different things, the larger one: somebody may well use it.
        """
        if folder not in self._numbers:
            found: dict[str, int] = {}
            for path in self._files(folder, _SETTINGS):
                text = _text(path)
                if path.endswith(".py"):
                    matches = _OPTION.finditer(text) if "add_argument(" in text else iter(())
                else:
                    matches = _SETTING.finditer(text)
                for match in matches:
                    at, value = match[1].replace("-", "_"), int(match[2])
                    if 1 <= value <= MOST_EVERY:
                        found[at] = max(value, found.get(at, 0))
            self._numbers[folder] = found
        return self._numbers[folder].get(name, 0)

    def _files(self, folder: str, names: re.Pattern[str]) -> list[str]:
        folders, files = _listed(folder)
        found = [path for name, path in files if names.fullmatch(name)][:_MOST_FILES]
        self.read.setdefault(folder, set()).update(folders, found)
        return found


def _listed(folder: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return a folder with those in it that are called like settings, and the names and paths of
    their files.
    """
    found: list[tuple[str, str]] = []
    folders = [folder]
    for each in folders:
        try:
            with os.scandir(each) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            continue  # what may not be read says nothing
        for entry in entries:
            if entry.is_file():
                found.append((entry.name, entry.path))
            elif each == folder and _FOLDERS.fullmatch(entry.name) and entry.is_dir():
                folders.append(entry.path)
    return folders, found


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
