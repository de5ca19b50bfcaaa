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
