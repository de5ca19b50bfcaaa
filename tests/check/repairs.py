"""Loops that the tests of repairs vary, and what the checker says of a text."""

from __future__ import annotations

from instep.check.fixing import fix_unit
from instep.check.judge import judge
from instep.check.sources import units_from_bytes

HEAD = "import torch\nimport torch.nn.functional as F\n"


MADE = HEAD + "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"


NEVER = "for x, y in loader:\n    F.mse_loss(model(x), y).backward()\n    optimizer.step()\n"


def unit_of(text):
    [unit] = units_from_bytes(text.encode(), "train.py")
    return unit


def found(text):
    return [(finding.code, finding.place.line) for finding in judge(unit_of(text)).findings]


def codes(text):
    return {code for code, _ in found(text)}


def mended(text):
    return fix_unit(unit_of(text), unsafe=False, judge=judge, accept=lambda _, f: f).text


ACCUMULATE = """\
    for i, (x, y) in enumerate(loader):
        F.mse_loss(model(x), y).backward()
        if (i + 1) % {n} == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
"""


def messages(text, code):
    return [finding.message for finding in judge(unit_of(text)).findings if finding.code == code]


def severities(text):
    return {
        (finding.code, finding.severity.name.lower()) for finding in judge(unit_of(text)).findings
    }
