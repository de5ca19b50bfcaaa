"""Several processes of one job: each says what it saw in a file, and one of them tells it.

Nobody waits for a collective: a job that hangs or dies on one rank is told by the others. Ranks
that share a machine share a folder; the first of each machine reads it at its end. It does not wait
for ever: a rank that it has given up on tells by itself what it finds. Both ask for the same file,
which only one of them can make, so that each end is told once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from instep.reports.files import put
from instep.reports.record import finding_data, finding_of
from instep.watching.apart import Ending

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from instep.rules.finding import Finding
    from instep.trace import Place

_PATIENCE = 5.0
"""Seconds that the first rank waits for those that are still running."""
_OFTEN = 0.05
_OF_RANKS = "INS606"
"""The rule that says by itself which ranks it speaks of."""


@dataclass(frozen=True)
class Heard:
    """What one rank has said."""

    rank: int
    process: int
    is_over: bool
    findings: tuple[Finding, ...]
    endings: Mapping[str, Ending] = field(default_factory=dict)
    """By optimizer, when it is over."""


@dataclass(frozen=True)
class Ranks:
    """Which process of a job this is, and where it meets the others."""

    rank: int = 0
    size: int = 1
    local: int = 0
    """Its number on this machine."""
    neighbours: int = 1
    """Processes on this machine, this one included."""
    folder: Path | None = None

    @property
    def is_first(self) -> bool:
        """Whether this one tells what its machine saw."""
        return self.local == 0 or self.folder is None

    @property
    def prefix(self) -> str:
        """What its lines begin with, where several processes write to one terminal."""
        return f"rank {self.rank}: " if self.size > 1 and self.rank else ""

    def say(
        self,
        findings: Iterable[Finding],
        *,
        is_over: bool,
        endings: Mapping[str, Ending] | None = None,
    ) -> None:
        """Leave what this rank has found for whoever tells it, and how its optimizers ended."""
        if self.folder is None:
            return
        said = {
            "rank": self.rank,
            "process": os.getpid(),
            "is_over": is_over,
            "findings": [finding_data(finding) for finding in findings],
            "endings": {name: ending._asdict() for name, ending in (endings or {}).items()},
        }
        put(self.folder / f"{self.rank}.json", json.dumps(said))

    def hear(self) -> list[Heard]:
        """Return what the ranks of this machine have said so far, in their order."""
        found = []
        for file in () if self.folder is None else self.folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found.append(_read(json.loads(file.read_text(encoding="utf-8"))))
        return sorted(found, key=lambda heard: heard.rank)

    def wait(self, patience: float = _PATIENCE) -> list[Heard]:
        """Return what they have said when all of them are over, or dead, or patience is."""
        until = monotonic() + patience
        while True:
            heard = self.hear()
            if self.folder is None or self.is_last(heard) or monotonic() > until:
                return heard
            sleep(_OFTEN)

    def unheard(self, heard: Iterable[Heard]) -> list[int]:
        """Return the ranks of this machine that are not heard to their end, or not at all."""
        first = self.rank - self.local
        over = {each.rank for each in heard if each.is_over}
        return sorted({*range(first, first + self.neighbours)} - over)

    def give_up(self, ranks: Iterable[int]) -> bool:
        """Leave ranks to tell by themselves; false if one of them has come to its end just now."""
        left = [self._makes(f"{rank}.alone") for rank in ranks]  # each of them
        return all(left)

    @property
    def is_left_alone(self) -> bool:
        """Whether the first one has left before this one has said that it is over."""
        return not self.is_first and not self._makes(f"{self.rank}.alone")

    def tells(self, finding: Finding) -> bool:
        """Say whether nobody has told a finding yet: whoever asks is about to."""
        where = repr((finding.code, finding.place))
        return self._makes(f"{hashlib.sha256(where.encode()).hexdigest()}.told")

    def _makes(self, name: str) -> bool:
        """Make a file that only one rank can make."""
        if self.folder is None:
            return True
        try:
            (self.folder / name).touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        except FileNotFoundError:  # the folder has gone: everybody had been heard by then
            return True
        return True

    def is_last(self, heard: Iterable[Heard]) -> bool:
        """Say whether no rank of this machine is still to come to its end."""
        over = [each for each in heard if each.is_over or not _is_alive(each.process)]
        return len(over) >= self.neighbours

    def forget(self) -> None:
        """Remove the folder."""
        if self.folder is not None:
            for file in self.folder.glob("*.*"):
                file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.folder.rmdir()


def ranks_of(environ: Mapping[str, str]) -> Ranks:
    """Return what the launcher's variables say; one process where there are none.

    >>> ranks_of({})
    Ranks(rank=0, size=1, local=0, neighbours=1, folder=None)
    """
    try:
        size = int(environ["WORLD_SIZE"])
        rank = int(environ["RANK"])
        local = int(environ["LOCAL_RANK"])
        neighbours = int(environ["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        return Ranks()
    if neighbours < 2:
        return Ranks(rank, size, local, neighbours)
    return Ranks(rank, size, local, neighbours, _folder(environ))


def merged(heard: Sequence[Heard]) -> tuple[Finding, ...]:
    """Return the findings of all ranks, each once; those that not all have found say who has."""
    found: dict[tuple[str, Place], list[tuple[int, Finding]]] = {}
    for each in heard:
        for finding in each.findings:
            found.setdefault((finding.code, finding.place), []).append((each.rank, finding))
    return tuple(
        _with_ranks(group[0][1], [rank for rank, _ in group], len(heard))
        for group in found.values()
    )


def _with_ranks(finding: Finding, ranks: list[int], size: int) -> Finding:
    if len(ranks) == size or finding.code == _OF_RANKS:
        return finding
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    return replace(finding, message=f"{finding.message} (on {who})")


def _folder(environ: Mapping[str, str]) -> Path | None:
    """Return a folder that the processes of one launcher agree on, and nobody else can write to."""
    user = getattr(os, "getuid", lambda: 0)()
    port = environ.get("MASTER_PORT", "")
    again = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    names = "-".join(map(str, (user, os.getppid(), port, again)))
    folder = Path(tempfile.gettempdir(), f"instep-watch-{names}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        known = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(known.st_mode) and known.st_uid == user
    return folder if is_ours else None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _read(said: dict[str, Any]) -> Heard:
    return Heard(
        int(said["rank"]),
        int(said["process"]),
        bool(said["is_over"]),
        tuple(map(finding_of, said["findings"])),
        {name: _ending(ending) for name, ending in said["endings"].items()},
    )


def _ending(said: dict[str, Any]) -> Ending:
    return Ending(**{**said, "weights": tuple(said["weights"])})  # JSON has lists alone
