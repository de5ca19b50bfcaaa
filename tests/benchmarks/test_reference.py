"""The oracle of the exactness table has teeth: it accepts what is right and rejects what is not."""

import pytest
import torch

from benchmarks.exactness.peers import textbook
from benchmarks.exactness.reference import accepted, relative_error
from benchmarks.exactness.scenarios import Kind, ragged, situations

EXACT = 1e-12
RAGGED = {scenario.title: scenario for scenario in ragged()}
SITUATIONS = {scenario.title: scenario for scenario in situations()}


def textbook_error(scenario):
    (answers,) = textbook.ROWS
    return relative_error(answers[scenario.kind](scenario, scenario.fresh_model()), scenario)


@pytest.mark.parametrize("title", ["equal", "clip"])
def test_accepts_the_textbook_loop_where_the_work_is_even(title):
    assert textbook_error(RAGGED[title]) < EXACT


@pytest.mark.parametrize("title", sorted(RAGGED.keys() - {"equal", "clip"}))
def test_rejects_the_textbook_loop_where_the_work_is_ragged(title):
    assert textbook_error(RAGGED[title]) > 0.05


def test_rejects_the_textbook_loop_after_a_break_and_a_resume():
    assert textbook_error(SITUATIONS["mid-window resume"]) > 0.05
    assert textbook_error(SITUATIONS["break, next epoch"]) > 0.05


def test_a_masked_mean_over_nothing_is_nan_in_the_textbook_loop():
    error = textbook_error(SITUATIONS["empty micro-batch, masked mean"])
    assert torch.tensor(error).isnan()


@pytest.mark.parametrize("scenario", [*ragged(), *situations()], ids=lambda each: each.title)
def test_every_scenario_moves_the_parameters_and_keeps_them_finite(scenario):
    for truth in accepted(scenario):
        moved = False
        start = scenario.fresh_model().parameters()
        for before, after in zip(start, truth.parameters(), strict=True):
            assert after.isfinite().all()
            moved |= not torch.equal(before, after)
        assert moved


def test_doing_nothing_is_an_error_of_one():
    scenario = RAGGED["equal"]
    assert relative_error(scenario.fresh_model(), scenario) == pytest.approx(1.0)


def test_the_truth_has_no_error():
    for scenario in (*ragged(), *situations()):
        for truth in accepted(scenario):
            assert relative_error(truth, scenario) == 0.0


def test_the_overflow_stops_one_of_the_two_models():
    scenario = SITUATIONS["GradScaler, windows 4 and 4"]
    assert scenario.kind is Kind.SCALED
    infinite = [not bool(micro.inputs.isfinite().all()) for micro in scenario.micro_batches]
    assert infinite.count(True) == 1
    (truth,) = accepted(scenario)
    assert all(bool(parameter.isfinite().all()) for parameter in truth.parameters())


def test_the_scenarios_are_as_ragged_as_they_say():
    counts = {
        title: [int((micro.targets != -100).sum()) for micro in scenario.micro_batches]
        for title, scenario in RAGGED.items()
    }
    assert len(set(counts["equal"])) == 1
    assert len(counts["equal"]) % 4 == 0
    assert len(counts["short last window"]) % 4 != 0
    assert counts["short last micro-batch"][-1] * 4 == counts["short last micro-batch"][0]
    assert len(set(counts["ignored tokens"])) > 1
    assert min(counts["ignored tokens"]) > 0
    assert counts["one empty window"][4:8] == [0, 0, 0, 0]
