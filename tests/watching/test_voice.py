import io

import pytest

from instep.rules.finding import Finding, Severity
from instep.trace import Place
from instep.watching.quoting import Quoting
from instep.watching.voice import PER_SECOND, Voice, colours, counted, say, summary


def found(line, severity=Severity.ERROR, message="it is wrong."):
    return Finding("INS101", "missing-zero-grad", severity, Place("a.py", line, column=4), message)


def voice_of(clock):
    stream = io.StringIO()
    return Voice(Quoting("/nowhere"), stream=stream, clock=clock), stream


def test_a_line_says_where_what_and_why():
    voice, stream = voice_of(lambda: 0.0)
    voice.tell(found(3, message="it \x1b[2J is wrong."))
    assert stream.getvalue() == (
        "a.py:3:5: error INS101 missing-zero-grad: it \\x1b[2J is wrong.\n"
    )


def test_a_few_per_second_and_none_is_lost():
    now = [0.0]
    voice, stream = voice_of(lambda: now[0])
    for line in range(10):
        voice.tell(found(line + 1))
    assert stream.getvalue().count("\n") == PER_SECOND
    now[0] = 0.9
    voice.go_on()
    assert stream.getvalue().count("\n") == PER_SECOND
    now[0] = 1.0
    voice.go_on()
    assert stream.getvalue().count("\n") == 2 * PER_SECOND
    voice.go_on(last=True)
    lines = [row.split(":")[1] for row in stream.getvalue().splitlines()]
    assert lines == [str(line + 1) for line in range(10)]


def test_a_stream_that_cannot_say_it_all():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    say("ü×\n", stream)
    assert raw.getvalue() == b"\\xfc\\xd7\n"
    stream.close()
    say("nothing happens", stream)

    class Broken(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    say("nothing happens", Broken())


class Bare:
    """What people put in place of standard error: it writes, and may do nothing else."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text


class Odd(Bare):
    encoding = 3

    def isatty(self):
        raise KeyError("isatty")

    def write(self, text):
        raise AttributeError("file")


@pytest.mark.parametrize("made", [Bare, Odd])
def test_a_stream_of_somebody_s_own(made):
    stream = made()
    say("something\n", stream)
    voice = Voice(Quoting("/nowhere"), stream=stream, clock=lambda: 0.0)
    voice.tell(found(3))
    assert not colours(stream)
    if made is Bare:
        assert stream.text.startswith("something\na.py:3:5: error INS101")


def test_whoever_ends_the_job_while_something_is_said_ends_it():
    class Interrupted(Bare):
        def write(self, text):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        say("something\n", Interrupted())


def test_the_summary():
    many = [found(1), found(2), found(3, Severity.WARNING), found(4, Severity.INFO)]
    assert counted(many) == "2 errors, 1 warning and 1 note"
    said = summary(many, updates={"g": 1200, "d": 1}, skipped={"d": 1}, faults=2)
    assert said == (
        "Watched 1,200 updates of `g`; 1 update of `d`, 1 of them skipped: "
        "2 errors, 1 warning and 1 note found.\n"
        "The watcher failed 2 times and may have missed something.\n"
    )


def test_many_optimizers_are_counted():
    updates = {f"o{number}": 8 for number in range(60)}
    said = summary([], updates=updates, skipped={"o1": 1, "o50": 2})
    assert said == (
        "Watched 8 updates of `o0`; 8 updates of `o1`, 1 of them skipped; 8 updates of `o2`; "
        "456 updates of 57 other optimizers, 2 of them skipped: no problems found.\n"
    )
    four = summary([], updates=dict(list(updates.items())[:4]), skipped={})
    assert four.endswith("`o2`; 8 updates of `o3`: no problems found.\n")


def test_what_was_not_seen_comes_last():
    said = summary([], updates={"o": 1}, skipped={}, faults=1, aside=["One thing.", "Another."])
    assert said.splitlines()[2:] == ["One thing.", "Another."]
