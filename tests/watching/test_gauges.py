import gc

from instep.rules.registry import rulebook
from instep.trace import Place
from instep.watching.gauges import Gauges
from instep.watching.job import Job
from tests.watching.jobs import run


def test_the_latest_of_each_is_told():
    gauges = Gauges()
    gauges.show("update-ratio", "sgd", 0.1, subject="w", place=Place("train.py", 1))
    gauges.show("update-ratio", "sgd", 0.2)
    gauges.show("update-ratio", "adam", 0.3)
    gauges.show("graphs-kept", None, 8.0)
    assert [(e.optimizers, e.value) for e in gauges] == [
        (("sgd",), 0.2),
        (("adam",), 0.3),
        (None, 8.0),
    ]
    gauges.hide("update-ratio", "sgd")
    gauges.hide("update-ratio", "sgd")
    assert [e.value for e in gauges] == [0.3, 8.0]


def test_news_are_what_is_new_or_has_doubled_or_halved():
    gauges = Gauges()
    assert not gauges.has_news
    gauges.show("nonfinite-updates", "sgd", 4.0)
    assert gauges.has_news
    gauges.looked()
    assert not gauges.has_news
    for value, news in ((7.9, False), (2.1, False), (4.0, False), (8.0, True), (2.0, True)):
        gauges.looked()
        gauges.show("nonfinite-updates", "sgd", 4.0)
        gauges.looked()
        gauges.show("nonfinite-updates", "sgd", value)
        assert gauges.has_news == news, value
    gauges.show("update-ratio", "sgd", 0.0)
    gauges.looked()
    gauges.show("update-ratio", "sgd", 0.0)
    assert not gauges.has_news


def test_a_gauge_is_judged_while_the_job_runs():
    """Nothing is new in the events of a loop by the tenth update, but a gauge is."""
    source = rulebook()["INS504"].BAD
    early = []
    job = run(source + "early(list(current().judge.findings.values()))\n", **_peek(early))
    assert [finding.code for finding in early] == ["INS504"]
    assert [finding.code for finding in job.findings] == ["INS504"]


def test_a_finding_is_told_once_and_keeps_the_latest_number():
    told = []
    source = rulebook()["INS505"].BAD.replace("for update", "listen()\nfor update")
    job = run(source, listen=lambda: setattr(_current().judge, "told", told.append))
    assert len(told) == 1
    assert "20 updates" not in told[0].message
    assert "20 updates" in job.findings[0].message


def _current():
    return next(
        thing for thing in gc.get_objects() if type(thing) is Job and thing.seam.patches._undo
    )


def _peek(into):
    return {"current": _current, "early": into.extend}
