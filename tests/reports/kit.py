"""A sample that is read by hand, and strategies for findings in files that mean harm."""

from __future__ import annotations

import unicodedata

from hypothesis import strategies as st

from instep.reports import split_lines
from instep.rules import Edit, Finding, Fix, Related, Severity
from instep.trace import Place

LOOP = """\
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    log(loss)
    optimizer.step()
"""


def source_of(files):
    """A Source over a dict of path, or (path, cell), to text."""

    def lines(path, cell):
        text = files.get(path if cell is None else (path, cell))
        return None if text is None else split_lines(text)

    return lines


def at(line, column, end_column, *, path="train.py", cell=None, end_line=None):
    return Place(path, line, column, end_line or line, end_column, cell=cell)


def finding(**changes):
    """missing-zero-grad in LOOP, with everything a finding can have."""
    given = {
        "code": "INS101",
        "name": "missing-zero-grad",
        "severity": Severity.ERROR,
        "place": at(5, 4, 20),
        "message": "no gradient is ever cleared, so each update adds up all batches.",
        "related": (Related(at(3, 4, 19), "backward here"),),
        "condition": "when scaler is not None",
        "fix": Fix("clear the gradients after the step", (Edit(5, 20, 5, 20, "\n    zero()"),)),
    }
    return Finding(**(given | changes))


def plain(**changes):
    return finding(**({"related": (), "condition": None, "fix": None} | changes))


# Escapes, line ends of all kinds, bidirectional marks, halves of surrogates, wide and combining
# characters, and what the formats themselves treat as special.
NASTY = "\x1b\x9b\x7f\x00\x07\x08\r\n\t\x0c\x1c\x85\u2028\u2029\u202e\u2066\u200d\ufeff\ud800\udc80"
SPECIAL = "ab =.()[]{}%:,;\"'\\損é😀\u0301\ufe0f"
texts = st.text(st.sampled_from(NASTY + SPECIAL) | st.characters(), max_size=30)
severities = st.sampled_from(Severity)


@st.composite
def places(draw, files):
    """Mostly in one of the files, sometimes nowhere."""
    key = draw(st.sampled_from([*files, "missing.py"]))
    path, cell = key if isinstance(key, tuple) else (key, None)
    small = st.integers(0, 40)
    return Place(
        path,
        draw(st.integers(1, 6)),
        draw(st.none() | small),
        draw(st.none() | st.integers(1, 8)),
        draw(st.none() | small),
        snippet=draw(st.none() | texts),
        cell=cell,
    )


@st.composite
def edits(draw, text):
    """An edit of this text between two of its characters."""
    start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    return Edit(*byte_position(text, start), *byte_position(text, end), draw(texts))


def byte_position(text, index):
    lines = split_lines(text[:index])
    if text[:index].endswith("\r") and text[index : index + 1] == "\n":
        lines = split_lines(text[: index - 1])  # inside a line end there is no position
    return len(lines), len(lines[-1].encode("utf-8", "surrogatepass"))


@st.composite
def cases(draw):
    """(files, findings)"""
    files = draw(
        st.dictionaries(texts | st.tuples(texts, st.integers(1, 3)), texts, min_size=1, max_size=3)
    )
    found = []
    for _ in range(draw(st.integers(0, 3))):
        place = draw(places(files))
        key = place.path if place.cell is None else (place.path, place.cell)
        change = st.lists(edits(files.get(key, "")), max_size=2).map(tuple)
        found.append(
            Finding(
                draw(st.sampled_from(["INS101", "INS202", "INS601"]) | texts),
                draw(texts),
                draw(severities),
                place,
                draw(texts),
                tuple(draw(st.lists(st.builds(Related, places(files), texts), max_size=3))),
                draw(st.none() | texts),
                draw(st.none() | st.builds(Fix, texts, change, st.booleans())),
            )
        )
    return files, found


def raw_controls(text):
    """Characters that would act on a terminal instead of being seen."""
    unsafe = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return {char for char in text if unicodedata.category(char) in unsafe}
