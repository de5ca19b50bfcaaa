import pytest

from instep.rules import loss_graph_kept as rule
from instep.trace import LossKept
from tests.rules.lines import at, backward, judged, one, step


def kept(outlives, into="total", line=70):
    return at(line, LossKept("loss", into, outlives))


def test_kept():
    severity, message = judged(rule, *[backward(), step(), kept(outlives=True)] * 2)[70]
    assert severity == "warning"
    assert message == (
        "the graph of every loss stays alive in `total`, so memory grows with each iteration."
    )


def test_somewhere():
    assert "in a name that lives on" in judged(rule, kept(outlives=True, into=None))[70][1]


def test_the_evidence():
    finding = one(rule, backward(), kept(outlives=True))
    assert [e.kind for e in finding.evidence] == ["loss-kept", "backward"]
    assert [r.place.line for r in finding.related] == [10]


@pytest.mark.parametrize("outlives", [False, None])
def test_silent(outlives):
    assert judged(rule, backward(), kept(outlives)) == {}


def test_what_begins_anew_is_a_note():
    event = at(70, LossKept("loss", "total", outlives=True, renewed=True))
    severity, message = judged(rule, backward(), step(), event)[70]
    assert severity == "info"
    assert message == (
        "the graph of every loss stays alive in `total` until that begins anew, so memory grows up "
        "to there."
    )
