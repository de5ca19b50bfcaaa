import io

from instep.check.progress import Progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_bar_that_comes_late_and_goes_away():
    clock, stream = Clock(), io.StringIO()
    with Progress(stream, is_on=True, clock=clock) as progress:
        progress.start(10)
        progress.advance()
        assert stream.getvalue() == ""
        clock.now = 1.5
        progress.advance(4)
        assert "50%" in stream.getvalue()
        written = stream.getvalue()
        progress.advance()
        assert stream.getvalue() == written
        clock.now = 2.0
        progress.advance(100)
        assert "100%" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_nothing_where_nobody_looks():
    clock, stream = Clock(), io.StringIO()
    with Progress(stream, is_on=False, clock=clock) as progress:
        progress.start(2)
        clock.now = 100.0
        progress.advance()
    with Progress(stream, is_on=True, clock=clock) as progress:
        progress.start(0)
        progress.advance(0)
    assert stream.getvalue() == ""
