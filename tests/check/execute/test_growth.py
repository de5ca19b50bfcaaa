"""Whatever a program makes of its values again and again: what stands for them stays small."""

from hypothesis import given, settings
from hypothesis import strategies as st

from instep.check.execute.numbers import MOST_ITEMS, key
from instep.check.execute.values import (
    LONGEST,
    DictValue,
    ListValue,
    Ref,
    Thing,
    Unknown,
    key_of,
    name_of,
)
from tests.check.execute.run import executed, run

GROWING = [
    "a += a / (1 + b)",
    "b = a * b - a",
    "a = a.next",
    "a = a[0]",
    "a = a['b']",
    "a = a.get('b')",
    "a, b = b, a",
    "a = b",
    "b = (a, b)",
    "b = (b, b)",
    "b = (*b, *b)",
    "b = [*b, *b]",
    "b = b + b",
    "b = [a]",
    "b = 'text'",
    "b = torch",
    "b = b.part",
    "b = torch.nn.Linear(2, 2)",
    "b, c = a",
    "b = len(a)",
    "a = b(a)",
    "if a < b: pass",
    "if a in b: pass",
    "if a == b or not b: pass",
]
PASSES = 12
"""Doubled as often by each of five statements, a text has 2 ** 60 characters."""


def texts(m, scope):
    yield from m.decisions.made
    for value in [*scope.names.values(), *m.derived.values()]:
        yield key(value)
        if isinstance(value, Thing):
            yield value.known_as or ""
        if isinstance(value, Unknown):
            yield value.key
        if isinstance(value, Ref):
            yield value.path


@given(st.lists(st.sampled_from(GROWING), min_size=1, max_size=5))
@settings(max_examples=150, deadline=None)
def test_no_text_and_no_container_grows_beyond_a_bound(statements):
    source = "import torch\n" + "\n".join(statements * PASSES) + "\n"
    m, scope = executed(source)
    # A condition names two values and what is asked about them.
    assert max(map(len, texts(m, scope)), default=0) <= 2 * LONGEST + 20
    for value in scope.names.values():
        if isinstance(value, ListValue | DictValue):
            assert len(value.items) <= MOST_ITEMS
        elif isinstance(value, tuple | str):
            assert len(value) <= MOST_ITEMS


def test_a_number_that_is_made_of_itself_in_nested_loops():
    found = run("""
        def train(model, loader, opt, self, x):
            for epoch in range(10):
                for batch in loader:
                    for k in range(8):
                        loss = model(batch).mean()
                        loss.backward()
                        x += x / (1 + self.y)
                    opt.step()
                    opt.zero_grad()
    """)
    assert found.paths
    assert not found.problems


def test_long_names_are_known_by_their_end_and_long_keys_stay_different():
    text = "x" * LONGEST
    assert name_of(text) == key_of(text) == text
    assert name_of(text + ".model") == "…" + (text + ".model")[1 - LONGEST :]
    one, other = key_of("a" + text), key_of("b" + text)
    assert one != other
    assert one == key_of("a" + text)
    assert len(one) == len(other) == len(name_of(text + ".model")) == LONGEST


def test_nothing_has_a_longer_name():
    long = "x" * 1000
    assert len(Thing(long).known_as) == len(Ref(long).path) == LONGEST
    assert len(Unknown(long).key) == len(Unknown(long).known_as) == LONGEST
