"""Lines and their endings: text with plain newlines, and the way back to what the file had."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

_ENDING = re.compile(r"\r\n?|\n")
_MOST_COMPARED = 2_000_000  # pairs of lines; beyond it, looking for moved lines takes seconds


class Line(NamedTuple):
    """A line of a file: its text, what ends it ("" for the last) and the offset it starts at."""

    text: str
    ending: str
    start: int


def plain(whole: str) -> str:
    r"""Return the text as Python reads it, every line ended by a newline character.

    >>> plain("a\r\nb\rc\n")
    'a\nb\nc\n'
    """
    return _ENDING.sub("\n", whole) if "\r" in whole else whole


def cut(whole: str) -> list[Line]:
    r"""Cut at the line ends that Python knows, and at no others (not at form feeds, for one).

    >>> [line.text for line in cut("a\r\nb\x0cc")]
    ['a', 'b\x0cc']
    """
    lines = []
    start = 0
    for ending in _ENDING.finditer(whole):
        lines.append(Line(whole[start : ending.start()], ending[0], start))
        start = ending.end()
    lines.append(Line(whole[start:], "", start))
    return lines


def usual_ending(lines: list[Line]) -> str:
    """Return the line ending that most of the lines have."""
    counted = Counter(line.ending for line in lines if line.ending)
    return counted.most_common(1)[0][0] if counted else "\n"


def restore(original: str, new: str) -> str:
    r"""Give edited text the line endings of the original.

    >>> restore("a\r\nb\r\n", "a\nx\nb\n")
    'a\r\nx\r\nb\r\n'
    """
    if "\r" not in original:
        return new
    lines = cut(original)
    usual = usual_ending(lines)
    if all(line.ending == usual for line in lines[:-1]):
        return new.replace("\n", usual)
    texts = new.split("\n")
    kept = realign([line.text for line in lines], texts)
    endings = [usual if at is None else lines[at].ending or usual for at in kept]
    endings[-1] = ""
    return "".join(text + ending for text, ending in zip(texts, endings, strict=True))


def realign(old: list[str], new: list[str]) -> list[int | None]:
    """Say for each new line which old line it is; None: it was written or changed.

    >>> realign(["a", "b", "c"], ["a", "x", "c"])
    [0, None, 2]
    """
    most = min(len(old), len(new))
    head = next((i for i in range(most) if old[i] != new[i]), most)
    most -= head
    tail = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    middle = _middle(old[head : len(old) - tail], new[head : len(new) - tail])
    return [
        *range(head),
        *(None if at is None else head + at for at in middle),
        *range(len(old) - tail, len(old)),
    ]


def _middle(old: list[str], new: list[str]) -> list[int | None]:
    kept: list[int | None] = [None] * len(new)
    if len(old) * len(new) > _MOST_COMPARED:
        return kept
    from difflib import SequenceMatcher  # noqa: PLC0415  # slow to load, and rarely needed

    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        kept[block.b : block.b + block.size] = range(block.a, block.a + block.size)
    return kept
