import pytest

from instep.explain import topics
from instep.rules.registry import names
from instep.symptoms import SYMPTOMS, matching


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("loss oscillates", "the loss oscillates"),
        ("oscillating loss", "the loss oscillates"),
        ("my loss jumps up and down", "the loss oscillates"),
        ("NoneType gradient", "a gradient is None"),
        ("'NoneType' object has no attribute 'data'", "a gradient is None"),
        ("slow training", "training is slow"),
        ("CUDA out of memory", "out of memory"),
        ("OOM", "out of memory"),
        ("image does not fit into memory", "an image does not fit into memory"),
        ("my images are too large", "an image does not fit into memory"),
        ("seams at patch borders", "seams at patch borders"),
        ("visible tile edges in the prediction", "seams at patch borders"),
        ("loss × accumulation factor", "the loss is too large by the accumulation factor"),
        ("NaN after an empty batch", "NaN after an empty batch"),
        ("learning rate ends early", "the learning rate ends early"),
        ("lr decays too fast", "the learning rate ends early"),
        ("gradients explode", "gradients explode"),
        ("exploding gradients", "gradients explode"),
        ("loss does not go down", "the loss does not go down, nothing learns"),
        ("loss doesn't decrease", "the loss does not go down, nothing learns"),
        ("model is not learning", "the loss does not go down, nothing learns"),
        (
            "different result with accumulation",
            "accumulation gives another result than the large batch",
        ),
        ("NaN with AMP", "NaN with mixed precision"),
        ("last batches ignored", "the last batches are ignored"),
        ("memory grows every iteration", "memory grows every iteration"),
        ("memory leak", "memory grows every iteration"),
        ("evaluation makes training worse", "training gets worse after evaluation"),
        ("encoder weights never change", "a part of the model stays as it was"),
        ("loss diverges", "the loss goes up"),
        ("oscilating", "the loss oscillates"),
    ],
)
def test_people_find_what_they_see(said, first):
    assert matching(said)[0].name == first


@pytest.mark.parametrize("said", ["", "  ", "?!", "qqqq", "my cat is hungry", "損失"])
def test_what_is_not_known_is_not_guessed(said):
    assert matching(said) == []


def test_every_cause_leads_somewhere():
    for symptom in SYMPTOMS:
        for cause in symptom.causes:
            assert cause.see in {*topics(), *names().values()}, cause.see
            assert cause.why.endswith(".")
    assert len({symptom.name for symptom in SYMPTOMS}) == len(SYMPTOMS)
    assert all(matching(symptom.name)[0] is symptom for symptom in SYMPTOMS)


def test_most_rules_have_a_symptom():
    named = {cause.see for symptom in SYMPTOMS for cause in symptom.causes}
    assert set(names().values()) <= named
