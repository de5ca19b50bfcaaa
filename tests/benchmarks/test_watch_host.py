"""What watching costs the host of the large GPT: the model has its parts, and calls are bounded."""

import torch

from benchmarks.gpu.models import GPT
from benchmarks.watch_overhead import host


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


def test_calls_of_an_update_that_is_measured(monkeypatch):
    monkeypatch.setitem(host._TIMED, host.MEASURED, 2)
    window = host.plain_loop()
    few, many = (host.added(window, size, host.MEASURED)[1] for size in (1, host.MICRO_BATCHES))
    assert 0 < few < 1000
    assert 0 < (many - few) / (host.MICRO_BATCHES - 1) < 170


def test_the_table_says_what_share_of_a_step_it_is():
    said = {"measured/1": (100.0, 10.0), "measured/8": (2096.7, 80.0)}
    said |= {"not measured/1": (1.0, 1.0), "not measured/8": (8.0, 8.0)}
    rows = host._rows({"this code": [said, said, said]})
    assert rows[0] == ["this code", "measured", "2097 (2097 to 2097)", "285", "80", "1.00%"]
    assert rows[1][3:] == ["1", "8", "0.00%"]
