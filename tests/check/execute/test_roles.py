import re

import pytest

from instep.check.execute import roles


@pytest.mark.parametrize(
    ("names", "yes", "no"),
    [
        (
            roles.OPTIMIZER,
            ["optimizer", "opt", "opt_g", "optimG", "solver"],
            ["options", "adopt", "model"],
        ),
        (roles.SCHEDULER, ["scheduler", "lr_scheduler", "warmup"], ["optimizer", "sched"[:3]]),
        (roles.SCALER, ["scaler", "grad_scaler", "GradScaler"], ["scale"]),
        (roles.CRITERION, ["criterion", "loss_fn", "mse_loss", "loss"], ["model", "glossary"]),
        (roles.MODEL, ["model", "net", "netG", "G", "encoder"], ["batch", "x"]),
        (roles.LOADER, ["train_loader", "loader", "train_dl", "batches"], ["patches", "epochs"]),
        (
            roles.OPTIMIZER_CLASS,
            ["SGD", "AdamW", "MyOptimizer", "FusedAdam"],
            ["Optimizers", "Model"],
        ),
        (
            roles.SCHEDULER_CLASS,
            ["StepLR", "ReduceLROnPlateau", "get_cosine_schedule"],
            ["LRModel"],
        ),
        (roles.LOADER_CLASS, ["DataLoader", "MyLoader"], ["Loaders"]),
        (roles.COUPLED, ["InfoNCE", "SupConLoss", "nt_xent"], ["cross_entropy"]),
        (roles.BENIGN, ["save_checkpoint", "log"], ["run"]),
        (roles.PATCHES, ["patches", "tiles"], ["micro"]),
    ],
)
def test_names_and_their_roles(names, yes, no):
    assert [name for name in yes if name not in names] == []
    assert [name for name in no if name in names] == []


def test_what_was_said_of_many_names_is_forgotten(monkeypatch):
    monkeypatch.setattr(roles, "_MOST", 2)
    names = roles.Names("a")
    assert [name in names for name in ("a", "b", "ab", "c", "a")] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_bases_of_models():
    assert roles.is_module_base("pl.LightningModule")
    assert roles.is_module_base("transformers.PreTrainedModel")
    assert not roles.is_module_base("torch.utils.data.Dataset")
    assert not roles.is_module_base("pydantic.BaseModel")


def test_the_last_part_of_a_name():
    assert roles.last("self.model") == "model"
    assert roles.last(None) == ""


@pytest.mark.parametrize(
    "names", [value for value in vars(roles).values() if isinstance(value, roles.Names)]
)
def test_words_are_found_as_the_pattern_finds_them(names):
    words = {part.strip("^$") for part in re.findall(r"\^?\w+\$?", names._names)}
    asked = {form for w in words for form in (w, f"a{w}", f"{w}b", f"_{w}_", w.upper(), w[:-1])}
    whole = re.compile(names._names, names._flags)
    assert asked
    for name in asked:
        assert (name in names) == (whole.search(name) is not None), name
