from instep.check.execute.things import Net, overlap


def tree():
    whole = Net("model")
    encoder = Net("encoder", part_of=whole)
    layer = Net("layer", part_of=encoder)
    return whole, encoder, layer


def test_parts_know_their_wholes():
    whole, encoder, layer = tree()
    assert layer.part_of is encoder
    assert layer.lineage() == {layer, encoder, whole}
    assert whole.inside() == {whole, encoder, layer}


def test_a_part_of_two_models_has_both_in_its_lineage():
    whole, _, layer = tree()
    other = Net("other")
    layer.join(other)
    assert layer.part_of is not other
    assert {whole, other} < layer.lineage()


def test_a_model_is_no_part_of_its_own_part():
    whole, encoder, _ = tree()
    whole.join(encoder)
    whole.join(whole)
    assert whole.part_of is None
    assert encoder.parts == [tree_part for tree_part in encoder.parts if tree_part is not whole]


def test_what_is_wrapped_is_spread_with_its_parts():
    whole, _, layer = tree()
    assert layer.spread_over() is None
    whole.distributed = "ddp"
    assert layer.spread_over() == "ddp"


def test_models_overlap_if_one_is_inside_the_other():
    whole, encoder, layer = tree()
    other = Net("other")
    assert overlap(frozenset({whole}), frozenset({layer}))
    assert overlap(frozenset({layer}), frozenset({whole}))
    assert not overlap(frozenset({encoder}), frozenset({other}))
    assert not overlap(frozenset(), frozenset({other}))


def test_models_have_an_order():
    one, other = Net("p"), Net("p")
    assert one.serial < other.serial
