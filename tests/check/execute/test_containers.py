import pytest

from instep.check.execute.tensors import Tensor
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, UPDATE, evaluated, once, value


def test_lists_grow_and_shrink():
    assert value("v = []\nv.append(1)\nv.extend((2, 3))\nv.extend([4])").items == [1, 2, 3, 4]
    assert value("x = [1, 2]\nv = x.pop()") == 2
    assert value("v = [1]\nv.clear()").items == []
    assert not value("v = [1]\nv.extend(more)").exact
    assert isinstance(evaluated("[].pop()"), Unknown)
    assert isinstance(evaluated("[1].index(x)"), Unknown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("d.get('a')", 1),
        ("d.get('z')", None),
        ("d.get('z', 5)", 5),
        ("d.pop('a')", 1),
    ],
)
def test_entries_of_dicts(text, expected):
    assert evaluated(text, "d = {'a': 1}") == expected


def test_views_of_dicts():
    assert evaluated("d.values()", "d = {'a': 1}").items == [1]
    assert evaluated("d.keys()", "d = {'a': 1}").items == ["a"]
    assert evaluated("d.items()", "d = {'a': 1}").items == [("a", 1)]
    assert value("v = {'a': 1}\nv.update({'b': 2})").items == {"a": 1, "b": 2}
    assert isinstance(evaluated("d.get('z')", "d = {**more}"), Unknown)
    assert isinstance(evaluated("d.copy()", "d = {}"), Unknown)


def test_a_loss_in_a_list_is_kept():
    source = (
        SETUP + "losses = []\nfor x, y in loader:\n    if 1:" + UPDATE + "    losses.append(loss)"
    )
    assert once(source, "loss_kept") == [("loss_kept", "losses")]
    assert once(source.replace("append(loss)", "append(loss.item())"), "loss_kept") == []


def test_a_list_of_the_iteration_keeps_nothing():
    source = (
        SETUP
        + "for x, y in loader:\n    losses = []\n    if 1:"
        + UPDATE
        + "    losses.append(loss)"
    )
    assert once(source, "loss_kept") == []


def test_a_list_that_is_emptied_keeps_nothing():
    source = SETUP + "losses = []\nfor x, y in loader:\n    losses.clear()\n    if 1:" + UPDATE
    assert once(source + "    losses.append(loss)", "loss_kept") == []


def test_an_iterator_is_its_own_iterator():
    assert evaluated("iter((1, 2)).__iter__()").of == (1, 2)


@pytest.mark.parametrize(
    "change",
    [
        "d.update(more)",
        "d.update(vars(args))",
        "d.update(**more)",
        "d.update({**more})",
        "d = {**d, **more}",
        "d[name] = 5",
        "for name, each in more.items():\n    d[name] = each",
    ],
)
def test_numbers_that_anybody_may_have_set_are_defaults(change):
    changed = value(f"d = {{'every': 4, 'few': 1, 'name': 'a'}}\n{change}\nv = d['every']")
    assert isinstance(changed, Unknown)
    assert changed.number() == 4
    few = value(f"d = {{'every': 4, 'few': 1, 'name': 'a'}}\n{change}\nv = d['few']")
    assert isinstance(few, Unknown)
    assert few.number() != 1  # nothing is to be said about a single one


@pytest.mark.parametrize(
    "change", ["d.update({'other': 2})", "d.update(other=2)", "d = {**d, 'other': 2}"]
)
def test_numbers_that_nobody_has_set_stay(change):
    assert value(f"d = {{'every': 4}}\n{change}\nv = d['every']") == 4
    assert value(f"d = {{'every': 4}}\n{change}\nv = d['other']") == 2


def test_what_is_written_after_an_unknown_mapping_holds():
    assert value("d = {**more, 'every': 4}\nv = d['every']") == 4


def test_a_tensor_at_an_unknown_place_is_added_to_what_may_be_there():
    made = value(SETUP + "v = [x, y]\nv[k] = model(x)")
    assert len(made.items) == 3
    assert isinstance(made.items[-1], Tensor)
    assert not made.exact
    again = value(SETUP + "v = [x, y]\nv[k] = model(x)\nv[j] = model(y)")
    assert len(again.items) == 3  # of the same model: one of them tells as much as both
    other = "two = torch.nn.Linear(2, 2)\nv = [x]\nv[k] = model(x)\nv[j] = two(y)"
    assert len(value(SETUP + other).items) == 3
    known = value(SETUP + "v = [model(y), y]\nv[k] = model(x)")
    assert len(known.items) == 3  # the first is no store of its own


def test_what_is_no_tensor_leaves_a_list_as_it_is():
    made = value("v = [1, 2]\nv[k] = 3")
    assert (made.items, made.exact) == ([1, 2], True)
    assert len(value(SETUP + "v = [x, y]\nv[1:] = model(x)").items) == 2
