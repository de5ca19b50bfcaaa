"""What is known from the last run: one small file per checked file, named after its path.

An entry holds for the content it was made of, of the file and of all files that its judgement
followed, for one version of instep and of its rules, and for the settings of the run. It is JSON
and not a pickle: a folder that came with somebody's repository must not run code.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.check import stored

try:  # `hashlib` would hand out this one, after it has loaded OpenSSL for all the others
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from instep.check.options import Settings
    from instep.check.outcome import Outcome

_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# The cache of `instep check`.\n"
_OUR_ROOMS = ("check", "rules", "trace")


class Cache:
    """A folder of entries; what cannot be read or written is as if it were not there."""

    def __init__(self, folder: str | Path, settings: Settings) -> None:
        self.folder = str(folder)
        self._settings = settings
        self._digests: dict[str, str | None] = {}
        self._is_ready = False

    def get(self, path: str, data: bytes) -> Outcome | None:
        """Return the outcome of a file with this content, if it is known and holds."""
        try:
            with open(self._entry(path), "rb") as file:  # noqa: PTH123  # one call per file of a tree
                checksum, _, body = file.read().partition(b"\n")
            if checksum != _hash(body):
                return None
            entry: Any = json.loads(body)
            if entry["key"] != self._key(path, data):
                return None
            if any(self._digest(other) != digest for other, digest in entry["followed"]):
                return None
            return stored.outcome_of(entry["outcome"])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return None

    def put(self, path: str, data: bytes, outcome: Outcome) -> None:
        """Remember the outcome of a file."""
        if outcome.followed is None or outcome.after is not None:
            return
        entry = {
            "key": self._key(path, data),
            "followed": [[other, self._digest(other)] for other in outcome.followed],
            "outcome": stored.packed(outcome),
        }
        body = json.dumps(entry, separators=(",", ":")).encode()
        try:
            self._prepare()
            write_atomically(self._entry(path), _hash(body) + b"\n" + body)
        except OSError:
            return

    def _prepare(self) -> None:
        if self._is_ready:
            return
        versioned = Path(self.folder) / _version()
        if any(os.path.islink(path) for path in (self.folder, versioned)):  # noqa: PTH114
            raise NotADirectoryError(self.folder)  # it came with a repository, to lead elsewhere
        versioned.mkdir(parents=True, exist_ok=True)
        for name, text in ((".gitignore", "*\n"), ("CACHEDIR.TAG", _TAG)):
            note = Path(self.folder) / name
            if not note.exists():
                write_atomically(str(note), text.encode())
        self._is_ready = True

    def _entry(self, path: str) -> str:
        # A file is shown by another path in another folder, and its places say that path.
        absolute = os.path.abspath(path)  # noqa: PTH100  # no links followed
        name = _hash(f"{absolute}\0{path}".encode("utf-8", "surrogateescape")).decode()
        return os.path.join(self.folder, _version(), f"{name}.json")  # noqa: PTH118

    def _key(self, path: str, data: bytes) -> str:
        codes = ",".join(sorted(self._settings.codes_for(path)))
        return f"{_hash(data).decode()} {codes}"

    def _digest(self, path: str) -> str | None:
        """Return the digest of a followed file, or of the names in a folder that was searched;
        None if there is none, which may change too.
        """
        if path not in self._digests:
            self._digests[path] = None
            with contextlib.suppress(OSError, ValueError):
                if Path(path).is_file():  # a device would never end
                    self._digests[path] = _hash(Path(path).read_bytes()).decode()
                elif Path(path).is_dir():
                    names = sorted(name for name in os.listdir(path) if name[0] != ".")  # noqa: PTH208
                    digest = _hash("\0".join(names).encode("utf-8", "surrogateescape"))
                    self._digests[path] = digest.decode()
        return self._digests[path]


def write_atomically(path: str, data: bytes) -> None:
    """Write a file that is whole at any time; processes that write the same one do no harm."""
    beside = f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "xb") as file:  # noqa: PTH123  # "x" follows no link that waits there
            file.write(data)
        os.replace(beside, path)  # noqa: PTH105
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise


@cache
def _version() -> str:
    """Return what changes whenever instep could judge differently: all sources of its judgement."""
    package = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
    whole = blake2b(digest_size=8)
    for name in ("__init__.py", *_sources(package, _OUR_ROOMS)):
        with open(f"{package}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
            whole.update(name.encode() + b"\0" + file.read())
    return f"py{sys.version_info[0]}{sys.version_info[1]}-{whole.hexdigest()}"


def _sources(package: str, folders: Iterable[str]) -> Iterator[str]:
    """Yield the modules in some folders of the package, always in the same order."""
    # Not by `pathlib`: it would take most of the time of a run that finds everything in the cache.
    for folder in folders:
        with os.scandir(f"{package}/{folder}") as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        yield from (f"{folder}/{each.name}" for each in entries if each.name.endswith(".py"))
        inner = [f"{folder}/{each.name}" for each in entries if each.is_dir()]
        yield from _sources(package, inner)


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).hexdigest().encode()
