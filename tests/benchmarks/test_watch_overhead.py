import pytest
from torch.optim.optimizer import _global_optimizer_pre_hooks as hooks

from benchmarks.watch_overhead import jobs, measure, peers


def test_a_cost_is_taken_round_by_round(monkeypatch):
    """A step of one second, of two under watch: what is watched is told by the hooks it has."""
    now = [0.0]

    def train(updates):
        watched = bool(hooks)
        now[0] += updates * (2.0 if watched else 1.0)

    monkeypatch.setattr(measure, "_clock", lambda _: lambda: now[0])
    cost = measure.measure(train, rounds=3, updates=5, warm_up=2, device="cpu")
    assert cost.plain.middle == pytest.approx(1000.0)
    assert cost.ratio.middle == pytest.approx(2.0)
    assert cost.again.middle == pytest.approx(1.0)


def test_memory_is_that_of_the_watcher():
    kept = []
    train = jobs.mlp("cpu")
    assert 0 < measure.memory(train, 20) < 5
    assert measure.memory(lambda n: kept.append(bytearray(n * 100_000)), 100) > 9


def test_jobs_train():
    size = jobs.Size(layers=1, width=64, sequence=4, batch=2, words=8)
    jobs.transformer("cpu", size)(2)
    jobs.mlp("cpu")(2)


def test_a_peer_that_is_missing_is_no_row(tmp_path):
    assert peers.traincheck(tmp_path / "python") == []
