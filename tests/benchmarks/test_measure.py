import pytest
import torch

from benchmarks.overhead.measure import (
    Contestant,
    Spread,
    differences,
    measure,
    ratios,
    split_costs,
)
from benchmarks.overhead.plain import make_batches, make_model, plain


def test_two_unknowns_from_two_window_sizes():
    micro_batch, close = 5.0, 40.0
    at_8 = [micro_batch + close / 8] * 3
    at_32 = [micro_batch + close / 32] * 3
    micro, whole = split_costs(at_8, at_32, (8, 32))
    assert micro.middle == pytest.approx(micro_batch)
    assert whole.middle == pytest.approx(close)


def test_ratios_and_differences_are_taken_round_by_round():
    timings = {"plain": [1e-6, 2e-6, 4e-6], "other": [2e-6, 4e-6, 8e-6]}
    assert ratios(timings, "other", "plain") == Spread(2.0, 2.0, 2.0)
    assert differences(timings, "other", "plain").middle == pytest.approx(2.0)


def test_spread_text():
    assert Spread(1.0, 2.0, 3.0).text(".1f") == "2.0 (1.0 to 3.0)"


def test_every_round_times_everybody_and_setup_is_differenced():
    lengths = {"loop": [], "trainer": []}
    contestants = [
        Contestant("loop", lambda batches: lengths["loop"].append(len(batches))),
        Contestant("trainer", lambda batches: lengths["trainer"].append(len(batches)), True),
    ]
    timings = measure(contestants, make_batches(8), rounds=3)
    assert [len(values) for values in timings.values()] == [3, 3]
    assert lengths["loop"] == [8] * 4
    assert lengths["trainer"] == [8] + [8, 4] * 3


def test_the_plain_loop_is_a_correct_one():
    batches = make_batches(8)
    model, _ = make_model()
    inputs, labels = (torch.cat([batch[i] for batch in batches]) for i in (0, 1))
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    (expected, _) = torch.autograd.grad(loss, list(model.parameters()))

    run = plain(8)
    (trained,) = [
        cell.cell_contents
        for cell in run.__closure__
        if isinstance(cell.cell_contents, torch.nn.Module)
    ]
    run(batches)
    assert torch.allclose(trained.weight.grad, expected, atol=1e-7)
