import ast

import pytest

from instep.check.rewriting import apply
from instep.rules.counting import divisions
from instep.rules.restoring import restored
from instep.rules.window_mends import close_last_window
from tests.rules.mends import Text

LOOP = """\
def train(model, loader, optimizer, args):
    running, losses = 0.0, []
    for i, (x, y) in enumerate(loader):
        loss = f(model(x), y) / args.n
        loss.backward()
        {use}
        if (i + 1) % args.n == 0:
            optimizer.step()
            optimizer.zero_grad()
            {closed}
    {after}
"""
PASS = {"use": "pass", "closed": "pass", "after": "pass"}


def read(**parts):
    text = LOOP.format(**{**PASS, **parts})
    shown = Text(text)
    [loop] = [node for node in ast.walk(shown.tree) if isinstance(node, ast.For)]
    number = ast.parse("args.n", mode="eval").body
    return text, restored(shown.source, loop, number, divisions(loop, number)[:1])


def mend(text):
    shown = Text(text)
    fix = next(close_last_window(shown.source, shown.statement("optimizer.step()")))
    return fix, apply(text, fix.edits)


@pytest.mark.parametrize(
    "use",
    [
        "running += loss.item() * args.n",
        "running += args.n * loss.item()",
        "running += loss.item() * args.n * x.size(0)",
        "running += loss.item() * x.size(0) * args.n",
        "running += float(loss.detach()) * args.n  # of the whole",
        "running = 0.9 * running + 0.1 * loss.item() * args.n",
        "losses.append(loss.detach() * args.n)",
        "meter.update(loss.item() * args.n, x.size(0))",
        "print(f'{loss.item() * args.n:.3f}')",
        "loss = loss.detach() * args.n; running += loss",
        "loss *= args.n; running += loss.item()",
        "value = loss.item(); running += value * args.n",
        "if i % 10 == 0: print(loss.item() * args.n)",
        "bar.set_postfix(\n            loss=loss.item() * args.n,\n        )",
    ],
)
def test_what_is_made_whole_in_the_same_round_follows_the_divisor(use):
    text, after = read(use=use)
    assert (len(after.factors), after.unsure) == (1, None)
    fix, fixed = mend(text)
    assert fix.is_safe
    # Everything but the factor stays as it was written.
    assert use.replace("args.n", "size") in fixed


def test_at_the_close_of_a_window_it_is_that_windows_size():
    text, _ = read(closed="print(loss.item() * args.n)")
    fix, fixed = mend(text)
    assert fix.is_safe
    assert "print(loss.item() * size)" in fixed


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        ({"use": "running += float(loss) * float(args.n)"}, "float(loss) * float(args.n)"),
        ({"use": "meter.update(loss.item(), args.n)"}, "meter.update(loss.item(), args.n)"),
        ({"use": "log(loss, size=args.n)"}, "log(loss, size=args.n)"),
        ({"use": "n = args.n; running += loss.item() * n"}, "loss.item() * n"),
        (
            {"use": "running += loss.item()", "closed": "print(running * args.n)"},
            "running * args.n",
        ),
        (
            {"use": "running += loss.item()", "after": "return running * args.n / len(loader)"},
            "running * args.n / len(loader)",
        ),
        (
            {"use": "losses.append(loss.item())", "after": "return sum(losses) * args.n"},
            "sum(losses) * args.n",
        ),
        (
            {"use": "running += loss.item()", "after": "return running / (len(loader) // args.n)"},
            "running / (len(loader) // args.n)",
        ),
        (
            {
                "use": "running += loss.item()",
                "after": "return running\nmean = train()\nprint(mean * args.n)",
            },
            "mean * args.n",
        ),
        ({"use": "log(loss)", "after": "pass\ndef log(loss):\n    print(loss * n)"}, "loss * n"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_edit_can_follow_makes_a_fix_unsafe_and_is_named(parts, shown):
    text, after = read(**parts)
    assert after.unsure == shown
    fix, _ = mend(text)
    assert not fix.is_safe
    assert f"look at `{shown}`" in fix.title


@pytest.mark.parametrize(
    "parts",
    [
        {"use": "running += loss.item()"},
        {"use": "print(loss.item(), args.n)"},
        {"use": "seen += args.n * x.size(0)"},
        {"use": "running += loss.item()", "closed": "print(running); running = 0.0"},
        {"use": "pass", "after": "loss = validate(); print(loss * args.n)"},
    ],
)
def test_what_does_not_make_it_whole_stays(parts):
    text, after = read(**parts)
    assert after == type(after)((), None)
    assert mend(text)[0].is_safe


def test_what_was_not_divided_yet_stays():
    text = """\
for i, (x, y) in enumerate(loader):
    loss = f(model(x), y)
    running += loss.item() * n
    if n > 1:
        loss = loss / n
    loss.backward()
    total += loss.item() * n
    if (i + 1) % n == 0:
        optimizer.step()
for i, (x, y) in enumerate(loader):
    loss = f(model(x), y) / n
    loss.backward()
    total += loss.item() * n
"""
    fix, fixed = mend(text)
    assert fix.is_safe
    assert fixed.count("loss.item() * n") == 2
    assert fixed.count("    total += loss.item() * size\n") == 1


def test_a_loss_that_is_divided_in_its_backward_is_whole_everywhere_else():
    text = """\
for i, (x, y) in enumerate(loader):
    loss = f(model(x), y)
    (loss / n).backward()
    running += loss.item() * n
    if (i + 1) % n == 0:
        optimizer.step()
"""
    fix, fixed = mend(text)
    assert fix.is_safe
    assert "running += loss.item() * n\n" in fixed


def test_a_long_line_is_shown_by_its_beginning():
    _, after = read(use=f"meter.update(loss.item(), args.n, {'x' * 80})")
    assert after.unsure.endswith("x...")
    assert len(after.unsure) < 80
