from instep.watching.spool import EVERY, Spool


class Desk:
    """A clock, and a pen that takes its time."""

    def __init__(self, cost=0.0):
        self.now = 100.0
        self.cost = cost
        self.written = []

    def write(self):
        self.now += self.cost
        self.written.append(self.now)

    def spool(self):
        return Spool(self.write, clock=lambda: self.now)


def test_it_is_written_at_once_then_now_and_then():
    desk = Desk()
    spool = desk.spool()
    for _ in range(1000):
        spool.updated(0)
        desk.now += 0.01
    assert desk.written == [100.0, *[each for each in desk.written if each > 100.0]]
    assert len(desk.written) == 2
    assert desk.written[1] - desk.written[0] >= EVERY


def test_a_finding_does_not_wait():
    desk = Desk()
    spool = desk.spool()
    for findings in (0, 0, 1, 1, 3):
        spool.updated(findings)
    assert len(desk.written) == 3


def test_what_is_slow_to_write_is_written_seldom():
    desk = Desk(cost=2.0)
    spool = desk.spool()
    began = desk.now
    for update in range(2000):
        spool.updated(update)  # something new all the time
        desk.now += 1.0
    assert len(desk.written) * desk.cost <= 0.02 * (desk.now - began) + 2 * desk.cost
    assert len(desk.written) > 5
