"""INS602 zero-fill

The gradients are filled with zeros instead of being dropped. The update is the same, but each
window writes zeros over all gradients and its first backward reads them again to add to them; and
the gradients take up memory during the forward, when the activations need it most. With
`set_to_none=True`, the default since torch 2.0, the first backward simply stores what it computed.

**Fix.** `optimizer.zero_grad()`; by hand, `p.grad = None`.

**When it is fine.** If something reads `.grad` between the clear and the backward, or if the
addresses of the gradients must not change (CUDA graphs, flat buffers). Parameters that get no
gradient in a window are then updated with zeros by weight decay and momentum, which is sometimes
wanted. Of gradients that are filled by hand, `instep watch` sees that it was done and not where, so
it does not report them.
"""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from instep.rules.deletion import delete
from instep.rules.edits import replace
from instep.rules.finding import Severity
from instep.rules.mending import offer
from instep.rules.reading import distinct
from instep.rules.spelling import called
from instep.rules.view import report, spelled
from instep.trace import Zero

if TYPE_CHECKING:
    from collections.abc import Iterator

    from instep.rules.edits import Edits
    from instep.rules.finding import Finding, Fix
    from instep.rules.source import Source
    from instep.rules.view import View

CODE = "INS602"
NAME = "zero-fill"
SUMMARY = "Gradients are filled with zeros instead of being dropped."
SEVERITY = Severity.INFO
NEEDS = (Zero,)

BAD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad(set_to_none=False)  # <- here
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""

GOOD = """\
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def judge(view: View) -> Iterator[Finding]:
    """Find clears that write zeros."""
    # Without an optimizer the zeros belong to an update written by hand, in a lesson about it.
    yield from distinct(
        report(
            sys.modules[__name__],
            event,
            f"the gradients of `{spelled(event.optimizers[0])}` are filled with zeros, which costs "
            "a write and a read of all of them per update and keeps their memory.",
        )
        for event in view.trace.of(Zero)
        if event.set_to_none is False and event.optimizers
    )


def mend(finding: Finding, source: Source) -> Iterator[Fix]:
    """Leave out `set_to_none=False`."""
    call = source.call_at(finding.place)
    statement = source.statement_at(finding.place)
    match statement:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=ast.Attribute(attr="grad"), attr="zero_"))
        ):
            yield from offer("clear to None", _to_none(source, statement))
    if call is not None and called(call) == "zero_grad":
        short = replace(call, f"{source.code(call.func)}()")
        yield from offer("clear to None, as torch does by itself", short)


def _to_none(source: Source, statement: ast.Expr) -> Edits | None:
    """Write `p.grad = None` for `p.grad.zero_()`, and for a `p.grad.detach_()` before it."""
    gradient = source.code(statement).rpartition(".")[0]
    block = source.block(statement)
    before = block.statements[block.at - 1] if block is not None and block.at else None
    cut = (
        delete(source, before) if before is not None and _detaches(source, before, gradient) else ()
    )
    return None if cut is None else (*cut, *replace(statement, f"{gradient} = None"))


def _detaches(source: Source, statement: ast.stmt, gradient: str) -> bool:
    return source.code(statement) in {f"{gradient}.detach_()", f"{gradient}.requires_grad_(False)"}
