import contextlib

import pytest
import torch

import instep
from tests.watching.jobs import found, gauges, run

LOOP = """
model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []
for update in range(30):
    optimizer.zero_grad()
    y = model(torch.randn(8, 16))
    loss = y.square().mean()
    loss.backward()
    optimizer.step()
    {after}
"""
KEEPS = "from collections import deque; kept, other = deque(maxlen=20), []"


@pytest.mark.parametrize("after", ["kept.append(y)", "kept.append(loss)", "kept.append(y.sum())"])
def test_what_keeps_graphs(after):
    watched = run(LOOP.format(after=after))
    assert found(watched) == [("INS605", 9)]
    assert gauges(watched)["graphs-kept"].value >= 8
    assert "`kept` keeps what was computed" in watched.findings[0].message


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("history = {'y': [], 'n': []}", "history['y'].append(y)", "history"),
        ("total = 0.0", "total = total + loss", "total"),
        ("pairs = []", "pairs.append((update, y))", "pairs"),
        ("saved = {}", "saved[update] = {'y': y}", "saved"),
        ("class Log: pass\nlog = Log()\nlog.all = []", "log.all.append(y)", None),
    ],
)
def test_what_keeps_them_is_named_where_it_can_be_seen(before, after, name):
    watched = run(f"{before}\n{LOOP.format(after=after)}")
    [finding] = watched.findings
    said = "something" if name is None else f"`{name}`"
    assert f"memory grows: {said} keeps" in finding.message


@pytest.mark.parametrize(
    "after",
    [
        "kept.append(y.detach())",
        "kept.append(loss.item())",
        "kept = [*kept[-3:], loss]",
        "ring = [y]; ring.append(ring)",  # freed when Python looks for it
    ],
)
def test_what_does_not(after):
    watched = run(LOOP.format(after=after))
    assert "graphs-kept" not in gauges(watched)
    assert found(watched) == []


@pytest.mark.parametrize(
    "after",
    [
        "kept.append(loss)",
        "other.append(loss); del other[:-20]",
        "other.append(loss); other = [] if update % 50 == 49 else other",
        "other.append({'loss': loss}); del other[:-40]",
    ],
    ids=["deque", "the latest 20", "epochs", "the latest 40, unseen"],
)
def test_what_has_an_end_does_not_grow(after):
    source = LOOP.replace("30", "150").replace("kept = []", KEEPS).format(after=after)
    watched = run(source)
    assert found(watched) == []


def test_what_grows_beside_what_has_an_end_is_told():
    after = "kept.append(loss); other.append(y)"
    source = LOOP.replace("30", "150").replace("kept = []", KEEPS).format(after=after)
    assert "`other` keeps what was computed" in run(source).findings[0].message


def test_few_graphs_are_told_when_a_short_job_ends():
    assert found(run(LOOP.replace("30", "12").format(after="kept.append(loss)"))) == [("INS605", 9)]
    assert found(run(LOOP.replace("30", "12").format(after="kept = [*kept[-5:], loss]"))) == []


def test_graphs_that_are_let_go_are_no_longer_told():
    after = "kept.append(loss) if update < 20 else kept.clear()"
    assert "graphs-kept" not in gauges(run(LOOP.format(after=after)))


@pytest.mark.parametrize(("updates", "least"), [(30, ""), (90, "at least ")])
def test_what_is_not_counted_is_not_denied(updates, least):
    watched = run(LOOP.replace("30", str(updates)).format(after="kept.append(y)"))
    count = 28 if updates == 30 else 64
    assert watched.findings[0].message.startswith(f"the graphs of {least}{count} earlier")


IN_A_FUNCTION = """
def main():
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = []
    for update in range(40):
        optimizer.zero_grad()
        y = model(torch.randn(8, 16))
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
        {after}
    {end}
main()
"""


@pytest.mark.parametrize("end", ["return kept", "raise ZeroDivisionError", "raise SystemExit(0)"])
def test_what_a_function_has_kept_stays_told_when_it_has_returned(end):
    job = instep.watch(live=False)
    source = IN_A_FUNCTION.format(after="kept.append(y)", end=end)
    with contextlib.suppress(ZeroDivisionError, SystemExit), job:
        exec(compile(source, "train.py", "exec"), {"torch": torch})  # noqa: S102  # our own
    assert found(job) == [("INS605", 10)]
    assert job.findings[0].message.startswith("the graphs of 38 earlier backwards")


def test_what_a_function_lets_go_while_it_trains_is_not_told():
    after = "kept.append(y); kept = [] if update % 30 == 29 else kept"
    assert found(run(IN_A_FUNCTION.format(after=after, end="return kept"))) == []


def test_the_running_sum_of_an_epoch_has_an_end():
    source = IN_A_FUNCTION.replace("kept = []", "kept = 0.0").replace("40", "90")
    after = "kept += loss; kept = 0.0 if update % 30 == 29 else kept"
    assert found(run(source.format(after=after, end="return kept"))) == []
