"""What was seen of a job, as plain data: what pages and traces are drawn from.

A record needs nothing but itself: no file of the user's, no torch, no running job. It goes through
JSON and back, so that a job that is killed leaves one behind.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from instep.rules import Finding, Related, Severity
from instep.trace import Event, Place
from instep.trace.codec import TraceFormatError, decode, decode_value, encode, encode_value
from instep.trace.plain import dataclass, field

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
"""Of the JSON form."""

Point: TypeAlias = tuple[int, float, float]
"""The update, the seconds since the job began, the value."""

Moment: TypeAlias = tuple[float, int]
"""The seconds since the job began, and which of the events happened."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An optimizer, and how often it was stepped."""

    name: str
    type: str | None = None
    updates: int = 0
    """Steps, the skipped ones among them."""
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A job, as far as it was seen.

    >>> record = Record(title="train.py", seconds=1.5, optimizers=(Owner("optimizer", updates=3),))
    >>> Record.from_json(record.to_json()) == record
    True
    """

    title: str
    """What was run: the name of the script, or of the block."""
    command: tuple[str, ...] = ()
    folder: str = ""
    """Where it was run; paths below it are shown without it."""
    began: str | None = None
    """The date and time, as ISO 8601 writes it."""
    seconds: float = 0.0
    ending: str = "finished"
    """How it ended: "finished", "running", "failed", "interrupted", "killed"."""
    error: str | None = None
    """The last line of what it failed with."""
    rank: int = 0
    ranks: int = 1
    versions: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    optimizers: tuple[Owner, ...] = ()
    lines: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    """Numbers by "name/optimizer": loss, grad_norm, clip_norm, update_ratio, lr, skipped."""
    events: tuple[Event, ...] = ()
    """Each that happened, once."""
    first: tuple[Moment, ...] = ()
    latest: tuple[Moment, ...] = ()
    left_out: int = 0
    """Moments between the first and the latest."""
    unseen: tuple[str, ...] = ()
    """What could not be seen or was not kept, a sentence each."""
    unheard: tuple[int, ...] = ()
    """Ranks that had not come to their end when the others were told: they may have found more."""
    quotes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """The user's lines that findings and events speak of, by path and number."""

    @property
    def updates(self) -> int:
        """Steps of all optimizers that changed weights."""
        return sum(owner.updates - owner.skipped for owner in self.optimizers)

    def source(self, path: str, cell: int | None = None) -> list[str] | None:
        """Return the lines of a file as far as they are known: a `Source` for the other reports."""
        known = self.quotes.get(path)
        if not known or cell is not None:
            return None
        return [known.get(number, "") for number in range(1, max(known) + 1)]

    def shown(self, path: str) -> str:
        """Return a path as its reader knows it.

        >>> Record(title="", folder="/home/me").shown("/home/me/train.py")
        'train.py'
        """
        folder = self.folder.rstrip("/") + "/"
        return path.removeprefix(folder) if len(folder) > 1 else path

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        plain: dict[str, Any] = {
            "kind": "record",
            "version": VERSION,
            **{name: getattr(self, name) for name in _PLAIN},
            "findings": [finding_data(finding) for finding in self.findings],
            "optimizers": [[o.name, o.type, o.updates, o.skipped] for o in self.optimizers],
            "lines": {name: encode_value(points) for name, points in self.lines.items()},
            "events": [encode(event) for event in self.events],
            "quotes": {path: list(lines.items()) for path, lines in self.quotes.items()},
        }
        return json.dumps(plain, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the record that `to_json` wrote; TraceFormatError if it is none."""
        try:
            read = json.loads(text)
            if read.get("kind") != "record" or read.get("version") != VERSION:
                raise _refusal()
            return cls(**_read(read))
        except (ValueError, KeyError, TypeError, AttributeError, LookupError) as error:
            if isinstance(error, TraceFormatError):
                raise
            raise _refusal() from error


_PLAIN = (
    "title", "command", "folder", "began", "seconds", "ending", "error", "rank", "ranks",
    "versions", "first", "latest", "left_out", "unseen", "unheard",
)  # fmt: skip


def _read(read: dict[str, Any]) -> dict[str, Any]:
    values = {name: read[name] for name in _PLAIN}
    events = tuple(decode(each) for each in read["events"])
    moments = {
        side: tuple((float(seconds), int(event)) for seconds, event in read[side])
        for side in ("first", "latest")
    }
    if any(not 0 <= event < len(events) for side in moments.values() for _, event in side):
        raise _refusal()
    return {
        **values,
        **moments,
        "command": tuple(read["command"]),
        "unseen": tuple(read["unseen"]),
        "unheard": tuple(read["unheard"]),
        "findings": tuple(map(finding_of, read["findings"])),
        "optimizers": tuple(Owner(*each) for each in read["optimizers"]),
        "lines": {name: decode_value(points) for name, points in read["lines"].items()},
        "events": events,
        "quotes": {path: dict(map(tuple, lines)) for path, lines in read["quotes"].items()},
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    """Return a finding without its fix and its events: a running job is not mended."""
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.word,
        "place": encode_value(finding.place),
        "message": finding.message,
        "condition": finding.condition,
        "advice": finding.advice,
        "related": [[encode_value(each.place), each.label] for each in finding.related],
    }


def finding_of(read: dict[str, Any]) -> Finding:
    """Return the finding that `finding_data` has written."""
    return Finding(
        read["code"],
        read["name"],
        Severity[read["severity"].upper()],
        _place(read["place"]),
        read["message"],
        related=tuple(Related(_place(place), label) for place, label in read["related"]),
        condition=read["condition"],
        advice=read.get("advice"),
    )


def _place(read: object) -> Place:
    place = decode_value(read)
    if not isinstance(place, Place):
        raise _refusal()
    return place


def _refusal() -> TraceFormatError:
    return TraceFormatError(
        "not a record of a job that this version can read.\n"
        "  why:  it was not written by Record.to_json, was cut short, or is of another version.\n"
        "  fix:  watch the job again, or read it with the instep that wrote it."
    )
