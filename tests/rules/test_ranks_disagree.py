from instep.rules import ranks_disagree as rule
from instep.trace import Measured
from tests.rules.lines import O, at, judged


def test_ranks_that_have_gone_apart():
    says = "rank 1 has other weights than rank 0 after 32 updates"
    gauge = at(30, Measured(O, "ranks-disagree", 1.0, "ranks", says))
    assert judged(rule, gauge) == {
        30: ("error", f"ranks have gone apart under `optimizer`: {says}."),
    }


def test_nobody_knows_which():
    for count, says in ((1.0, "a rank differs"), (3.0, "3 ranks differ")):
        gauge = at(30, Measured(O, "ranks-disagree", count, "ranks"))
        assert judged(rule, gauge)[30][1].endswith(f"{says}.")
