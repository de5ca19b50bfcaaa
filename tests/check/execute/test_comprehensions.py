from instep.check.execute.things import Parameters
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, evaluated, executed


def test_what_is_known_is_gone_through():
    made = evaluated("[x + 1 for x in (1, 2)]")
    assert (made.items, made.exact) == ([2, 3], True)
    assert not evaluated("[x for x in (1, 2) if x]").exact


def test_one_element_stands_for_many():
    made = evaluated("[x for x in range(100)]")
    assert (len(made.items), made.exact) == (1, False)


def test_the_name_stays_inside():
    _, scope = executed("x = 1\nv = [x for x in (5, 6)]")
    assert scope.names["x"] == 1


def test_chosen_parameters_are_parameters():
    made = evaluated("[p for p in model.parameters() if p.requires_grad]", SETUP)
    assert isinstance(made, Parameters)
    assert made.complete
    made = evaluated("[p for n, p in model.named_parameters() if 'bias' in n]", SETUP)
    assert not made.complete


def test_dicts_hold_one_value_for_all():
    made = evaluated("{k: 4 for k in keys}")
    assert (list(made.items.values()), made.exact) == ([4], False)


def test_elements_of_iterators_come_in_pairs():
    setup = "loader = torch.utils.data.DataLoader(data)"
    index, batch = evaluated("[(i, x) for i, x in enumerate(loader)]", setup).items[0]
    assert isinstance(index, Unknown)
    assert index.drawn is None
    assert batch.drawn.known_as == "loader"
    one, other = evaluated("[pair for pair in zip(loader, loader)]", setup).items[0]
    assert one.drawn is other.drawn


def test_batches_know_their_loader():
    setup = "loader = torch.utils.data.DataLoader(data)"
    made = evaluated("[b for b in loader]", setup).items[0]
    assert made.drawn.known_as == "loader"


def test_models_of_a_known_number_are_kept_apart():
    made = evaluated("[torch.nn.Linear(2, 2) for _ in range(3)]", SETUP)
    assert made.exact
    assert len(set(made.items)) == 3
    for text in ("range(50)", "range(n)", "range(3) if _", "range(0, n)"):
        made = evaluated(f"[torch.nn.Linear(2, 2) for _ in {text}]", SETUP)
        assert (len(made.items), made.exact) == (1, False)
