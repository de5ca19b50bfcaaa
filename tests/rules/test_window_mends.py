import pytest

from instep.check.rewriting import apply
from instep.rules.window_mends import close_last_window, count_from_one, window_sizes
from tests.rules.mends import Text


def first(text, mend):
    shown = Text(text)
    fixes = list(mend(shown.source, shown.statement("optimizer.step()")))
    return apply(text, fixes[0].edits) if fixes else None


GATED = """\
for i, (x, y) in enumerate({loader}):
    loss = f(model(x), y) / {n}
    loss.backward()
    if {test}:
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("loader", "n", "test", "size", "closed"),
    [
        (
            "loader",
            "4",
            "(i + 1) % 4 == 0",
            "min(4, len(loader) - i // 4 * 4)",
            "(i + 1) % 4 == 0 or i + 1 == len(loader)",
        ),
        (
            "loader, start=1",
            "n",
            "i % n == 0",
            "min(n, len(loader) - (i - 1) // n * n)",
            "i % n == 0 or i == len(loader)",
        ),
        (
            "tqdm(self.data)",
            "cfg.n",
            "amp and (i + 1) % cfg.n == 0",
            "min(cfg.n, len(self.data) - i // cfg.n * cfg.n)",
            "amp and ((i + 1) % cfg.n == 0 or i + 1 == len(self.data))",
        ),
        (
            "loader",
            "(a * b)",
            "not (i + 1) % (a * b)",
            "min(a * b, len(loader) - i // (a * b) * (a * b))",
            "not (i + 1) % (a * b) or i + 1 == len(loader)",
        ),
        (
            "loader",
            "n",
            "not ((i + 1) % n != 0)",
            "min(n, len(loader) - i // n * n)",
            "not ((i + 1) % n != 0 and i + 1 != len(loader))",
        ),
        (
            "loader",
            "n",
            "(i + 1) % n == 0 or i + 1 == len(loader)",
            "min(n, len(loader) - i // n * n)",
            "(i + 1) % n == 0 or i + 1 == len(loader)",
        ),
    ],
)
def test_the_last_window(loader, n, test, size, closed):
    text = GATED.format(loader=loader, n=n, test=test)
    named = GATED.format(loader=loader, n="size", test=closed)
    expected = named.replace("    loss = f", f"    size = {size}\n    loss = f")
    assert first(text, close_last_window) == expected


def test_the_size_is_written_out_where_no_name_is_free():
    text = GATED.format(loader="l", n="n", test="(i + 1) % n == 0") + "    size = window_size = 1\n"
    assert "y) / min(n, len(l) - i // n * n)\n" in first(text, close_last_window)


def test_a_gate_around_the_call_of_a_helper():
    text = """\
def update():
    optimizer.step()

for i, x in enumerate(loader):
    (f(x) / n).backward()
    if i % n == n - 1:
        update()
"""
    assert (
        first(text, close_last_window)
        == """\
def update():
    optimizer.step()

for i, x in enumerate(loader):
    size = min(n, len(loader) - i // n * n)
    (f(x) / size).backward()
    if i % n == n - 1 or i + 1 == len(loader):
        update()
"""
    )


def test_a_counter_restarts_at_zero():
    text = """\
for x in xs:
    count += 1
    if count == 4:
        optimizer.step()
        count = 1
"""
    assert first(text, count_from_one) == text.replace("count = 1", "count = 0")


def test_the_last_window_behind_a_guard():
    text = "for i, x in enumerate(xs):\n    if (i + 1) % n: continue\n    optimizer.step()\n"
    assert "if (i + 1) % n and i + 1 != len(xs): continue" in first(text, close_last_window)


def test_a_loop_that_does_not_count_is_enumerated():
    text = """\
for x, y in tqdm(loader):
    loss = f(model(x), y) / n
    loss.backward()
    count += 1
    if count == n:
        optimizer.step()
"""
    assert (
        first(text, close_last_window)
        == """\
for i, (x, y) in enumerate(tqdm(loader)):
    size = min(n, len(loader) - i // n * n)
    loss = f(model(x), y) / size
    loss.backward()
    count += 1
    if count == n or i + 1 == len(loader):
        optimizer.step()
"""
    )
    taken = text.replace("count +=", "i = index = batch_index\n    count +=")
    assert first(taken, close_last_window) is None
    assert first(text.replace("tqdm(loader)", "stream()"), close_last_window) is None


def test_divisions_that_have_nothing_to_do_with_the_loss_stay():
    text = GATED.format(loader="l", n="4", test="(i + 1) % 4 == 0") + "    rate = done / 4\n"
    assert first(text, close_last_window).endswith("    rate = done / 4\n")


@pytest.mark.parametrize("loader", ["zip(a, b)", "iter(a)", "stream()"])
def test_no_length_no_last_window(loader):
    text = GATED.format(loader=loader, n="n", test="(i + 1) % n == 0")
    assert first(text, close_last_window) is None


@pytest.mark.parametrize(
    ("loader", "test", "counted"),
    [
        ("loader", "i % n == 0", "(i + 1) % n == 0"),
        ("loader", "(i) % n == 0", "(i + 1) % n == 0"),
        ("loader", "i > 0 and i % n == 0", "(i + 1) % n == 0"),
        ("loader", "i % n == 0 and i != 0", "(i + 1) % n == 0"),
        ("loader", "i and i % n == 0", "(i + 1) % n == 0"),
        ("loader", "amp and i % n == 0", "amp and (i + 1) % n == 0"),
        ("loader, 1", "(i + 1) % n == 0", "i % n == 0"),
        ("loader", "count > n", "count >= n"),
    ],
)
def test_off_by_one(loader, test, counted):
    text = GATED.format(loader=loader, n="n", test=test)
    assert first(text, count_from_one) == GATED.format(loader=loader, n="n", test=counted)


@pytest.mark.parametrize("test", ["(i + 1) % n == 0", "count >= n", "k % n == 0", "ready"])
def test_gates_that_count_right_stay(test):
    assert first(GATED.format(loader="loader", n="n", test=test), count_from_one) is None


HELPED = """\
def update():
    if (i + 1) % {n} == 0:
        optimizer.step()
for epoch in range(epochs):
    for i, x in enumerate(loader):
        loss = f(x)
        loss.backward()
        {call}
"""


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("for b in r:\n  for m in range(k):\n    loss.backward()\n  optimizer.step()\n", "k"),
        (GATED.format(loader="l", n=1, test="(i + 1) % args.n == 0"), "args.n"),
        (GATED.format(loader="l", n=1, test="ready"), None),
        (HELPED.format(call="update()", n="n"), "n"),
        (HELPED.format(call="update()", n="m"), "m"),
        (HELPED.format(call="update(m)", n="n").replace("update():", "update(n):"), None),
        (HELPED.format(call="apply(update)", n="n"), None),
    ],
)
def test_the_size_of_a_window(text, size):
    shown = Text(text)
    backward, step = shown.statement("loss.backward()"), shown.statement("optimizer.step()")
    assert next(window_sizes(shown.source, backward, step), None) == size
