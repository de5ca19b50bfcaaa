"""Loops made of lines that belong in one, in any order: fixes may never make anything worse."""

import ast
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from instep.check.fixing import fix_unit
from instep.check.judge import judge
from instep.check.sources import units_from_bytes

LINES = [
    "optimizer.zero_grad()",
    "optimizer.zero_grad(set_to_none=False)",
    "loss = criterion(model(x), y)",
    "loss = criterion(model(x), y) / 4",
    "loss.backward()",
    "(loss / n).backward()",
    "scaler.scale(loss).backward()",
    "optimizer.step()",
    "scaler.step(optimizer); scaler.update()",
    "scaler.step(optimizer)",
    "scaler.unscale_(optimizer)  # é",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "scheduler.step()",
    "total += loss",
    "model.eval()",
    "model.train()",
    "# a comment",
    "",
]
GATES = [
    "if (i + 1) % n == 0:",
    "if i % 4 == 0:",
    "if i > 0 and i % n == 0:",
    "if scaler is not None:",
    "for patch in patches:",
    "for micro in range(4):",
    "with torch.cuda.amp.autocast():",
]
HEAD = [
    "import torch",
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)",
    "scaler = torch.amp.GradScaler('cuda')",
    "total = 0.0",
]
LOOPS = ["for i, (x, y) in enumerate(loader):", "for x, y in loader:", "while True:"]


@st.composite
def bodies(draw, depth=0):
    lines = []
    for _ in range(draw(st.integers(1, 6))):
        if depth < 2 and draw(st.integers(0, 3)) == 0:
            inner = draw(bodies(depth + 1))
            lines += [draw(st.sampled_from(GATES)), *(f"    {line}" for line in inner)]
        else:
            lines.append(draw(st.sampled_from(LINES)))
    return [*lines, "pass"] if not any(is_code(line) for line in lines) else lines


def is_code(line):
    return line.strip() and not line.strip().startswith("#")


@st.composite
def programs(draw):
    head = draw(st.sampled_from([HEAD, HEAD[:2], ["import torch"]]))
    body = draw(bodies())
    lines = [*head, draw(st.sampled_from(LOOPS)), *(f"    {line}" for line in body)]
    if draw(st.booleans()):
        lines = ["def train(model, loader, n):", *(f"    {line}" for line in lines)]
    return "\n".join(line.rstrip() for line in lines) + draw(st.sampled_from(["", "\n"]))


def counts(text):
    [unit] = units_from_bytes(text.encode(), "a.py")
    return unit, Counter(finding.code for finding in judge(unit).findings)


@settings(deadline=None, max_examples=25)
@given(programs())
def test_fixes_only_ever_help(text):
    unit, before = counts(text)
    done = fix_unit(unit, unsafe=True, judge=judge, accept=lambda unit, findings: findings)
    ast.parse(done.text)
    _, after = counts(done.text)
    assert not after - before
    assert bool(done.fixed) == (done.text != text)
    if not before:
        assert done.text == text
    again = fix_unit(
        counts(done.text)[0], unsafe=True, judge=judge, accept=lambda unit, findings: findings
    )
    assert (again.text, again.fixed) == (done.text, ())
