"""How large a window was meant to be, where most windows are no full ones."""

import pytest

from tests.watching.jobs import run

LOOP = """
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn({batches} * 4, 8), torch.randint(0, 3, ({batches} * 4,)))
loader, n, count = DataLoader(data, 4), {n}, 0
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range({epochs}):
    for i, (x, y) in enumerate(loader):
        count += 1
        size = min(n, len(loader) - i // n * n)
        loss = F.cross_entropy(model(x), y) * {share}
        loss.backward()
        if {gate}:
            optimizer.step()
            optimizer.zero_grad()
            count = 0
"""
PLAIN, ALL = "(i + 1) % n == 0", "(i + 1) % n == 0 or i + 1 == len(loader)"


def told(batches, n, gate, share="(1 / n)", epochs=6):
    job = run(LOOP.format(batches=batches, n=n, gate=gate, share=share, epochs=epochs))
    return [(finding.code, finding.place.line, finding.message) for finding in job.findings]


@pytest.mark.parametrize(("batches", "n"), [(8, 6), (11, 8), (7, 4), (5, 3)])
def test_one_window_in_an_epoch_that_leaks_into_the_next(batches, n):
    ((code, line, message),) = told(batches, n, PLAIN)
    left = batches - n
    assert (code, line) == ("INS202", 14)
    assert message == (
        f"with {batches} batches and a gate of {n}, the last {left} of {batches} micro-batches "
        f"leak into the first update of the next epoch, which holds {batches} instead of {n}."
    )


@pytest.mark.parametrize(("batches", "n"), [(10, 8), (8, 6), (7, 4)])
def test_one_window_in_an_epoch_and_a_short_one_divided_alike(batches, n):
    ((code, line, message),) = told(batches, n, ALL)
    left = batches - n
    assert (code, line) == ("INS202", 12)
    assert f"instead of {n}, its update of `optimizer` is {left}/{n} of their mean" in message


@pytest.mark.parametrize(("batches", "n"), [(10, 4), (8, 4), (9, 3)])
def test_a_strict_comparison(batches, n):
    ((code, line, message),) = told(batches, n, "count > n", epochs=12)
    assert (code, line) == ("INS204", 14)
    assert message == (
        f"every window holds {n + 1} micro-batches, but each loss is divided by {n}: the update "
        f"is {n + 1}/{n} of their mean."
    )


LATE = """            optimizer.step()
        if i % n == 0:
            optimizer.zero_grad()
"""


@pytest.mark.parametrize("batches", [8, 9, 11])
def test_a_clear_one_micro_batch_too_late(batches):
    loop = LOOP.partition("            optimizer.step()")[0] + LATE
    job = run(loop.format(batches=batches, n=4, gate=PLAIN, share="(1 / n)", epochs=4))
    (finding,) = job.findings
    assert (finding.code, finding.place.line) == ("INS102", 16)
    assert finding.message.startswith("only 3 of 4 micro-batches reach the update of `optimizer`")


@pytest.mark.parametrize(
    ("batches", "n", "gate", "share"),
    [
        # Each window is divided by what it has.
        (10, 8, ALL, "(1 / size)"),
        (8, 6, ALL, "(1 / size)"),
        # A count that runs on over epochs.
        (8, 6, "count == n", "(1 / n)"),
        (11, 8, "count == n", "(1 / n)"),
        # Weights that have nothing to do with the window.
        (10, 3, "count == 3", "0.5 / 3"),
        (12, 4, "count == 4", "0.5 * 0.25"),
        # A half is a weight more often than not, and then the sum may be meant.
        (12, 3, "count == 3", "0.5"),
        # Windows of all sizes, none of which is the last of its epoch only.
        (12, 4, "i in (2, 6, 9, 11)", "(1 / n)"),
    ],
)
def test_windows_that_are_as_they_were_meant(batches, n, gate, share):
    assert told(batches, n, gate, share, epochs=8) == []
