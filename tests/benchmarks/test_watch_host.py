"""What watching costs the host of the large GPT: the model has its parts, and calls are bounded."""

import pytest
import torch

from benchmarks.gpu.models import GPT
from benchmarks.watch_overhead import host
from instep.watching import samples


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_the_narrow_model_has_the_parts_of_the_large_one(monkeypatch):
    made = []
    monkeypatch.setattr(host, "GPT", lambda **given: made.append(GPT(**given)) or made[0])
    host.plain_loop()(torch.zeros(1, 5, dtype=torch.long))
    with torch.device("meta"):
        large = GPT()
    (narrow,) = made
    assert [name for name, _ in narrow.named_modules()] == [
        name for name, _ in large.named_modules()
    ]
    assert len(list(narrow.parameters())) == len(list(large.parameters())) == 101


def test_calls_of_an_update(monkeypatch):
    monkeypatch.setattr(host, "_TIMED", {1: 2, host.MICRO_BATCHES: 2})
    monkeypatch.setattr(host, "_TURNS", 1)
    monkeypatch.setattr(host, "_READ", 40)
    monkeypatch.setattr(samples, "_FIRST_LOSSES", 40)
    window = host.plain_loop()
    window(torch.zeros(1, 5, dtype=torch.long))  # an optimizer makes its state at first
    few, many = (host.measured(window, size)[1] for size in (1, host.MICRO_BATCHES))
    assert 0 < few < 480
    assert 0 < (many - few) / (host.MICRO_BATCHES - 1) < 75
    found = host.later(window)
    few, many = (found[size][1] for size in (1, host.MICRO_BATCHES))
    assert 0 < few < 180
    assert 0 < (many - few) / (host.MICRO_BATCHES - 1) < 60


def test_the_table_says_what_share_of_a_step_it_is():
    said = {"measured/1": (100.0, 10.0), "measured/8": (2096.7, 80.0)}
    said |= {"not measured/1": (1.0, 1.0), "not measured/8": (8.0, 8.0)}
    rows = host._rows({"this code": [said, said, said]})
    assert rows[0] == ["this code", "measured", "2097 (2097 to 2097)", "285", "80", "10", "1.00%"]
    assert rows[1][3:] == ["1", "8", "1", "0.00%"]
