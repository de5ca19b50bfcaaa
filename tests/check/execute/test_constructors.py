import pytest

from instep.check.execute.things import Criterion, Loader, Net, Optimizer, Scheduler
from instep.check.execute.values import Unknown
from tests.check.execute.run import SETUP, evaluated, facts

IMPORTS = SETUP + "import timm, torchvision, transformers\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("torch.optim.AdamW(model.parameters())", Optimizer),
        ("bnb.optim.Adam8bit(model.parameters())", Optimizer),
        ("torch.utils.data.DataLoader(d)", Loader),
        ("torch.optim.lr_scheduler.StepLR(optimizer, 3)", Scheduler),
        ("transformers.get_linear_schedule_with_warmup(optimizer)", Scheduler),
        ("torch.nn.CrossEntropyLoss()", Criterion),
        ("torch.nn.Linear(1, 1)", Net),
        ("torchvision.models.resnet18()", Net),
        ("timm.create_model('vit')", Net),
        ("transformers.AutoModel.from_pretrained('x')", Net),
        ("transformers.AutoTokenizer.from_pretrained('x')", Unknown),
        ("torch.nn.Parameter(x)", Net),
        ("torch.zeros(3, requires_grad=True)", Net),
        ("torch.zeros(3)", Unknown),
    ],
)
def test_names_say_what_is_made(text, kind):
    assert isinstance(evaluated(text, IMPORTS + "import bnb"), kind)


def test_an_optimizer_holds_what_it_is_given():
    setup = IMPORTS + "head = torch.nn.Linear(1, 1)"
    made = evaluated(
        "torch.optim.SGD([{'params': model.parameters()}, {'params': head.parameters()}])", setup
    )
    assert {net.known_as for net in made.nets} == {"model", "head"}
    assert evaluated("torch.optim.SGD(params)", setup).nets is None


def test_a_wrapper_around_an_optimizer_is_the_optimizer():
    assert (
        evaluated("Lookahead(optimizer)", IMPORTS + "from x import Lookahead").known_as
        == "optimizer"
    )


def test_schedulers_know_their_optimizer_and_each_other():
    made = evaluated("torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)", IMPORTS)
    assert made.optimizer.known_as == "optimizer"
    setup = IMPORTS + "inner = torch.optim.lr_scheduler.StepLR(optimizer, 3)"
    assert evaluated(
        "GradualWarmupScheduler(inner)", setup + "\nfrom x import GradualWarmupScheduler"
    ).optimizer


def test_the_length_of_a_schedule_counts_batches_or_updates():
    text = "torch.optim.lr_scheduler.OneCycleLR(optimizer, total_steps={})"
    assert evaluated(text.format("len(train_loader) * epochs"), IMPORTS).horizon == "batches"
    assert evaluated(text.format("total // accum_steps"), IMPORTS).horizon == "updates"
    assert evaluated(text.format("1000"), IMPORTS).horizon is None


def test_layers_join_their_container():
    made = evaluated(
        "torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1), block)", SETUP
    )
    assert made.batchnorm
    assert made.trainable
    assert len(made.parts) == 3


def test_wrapped_models_are_the_same_model():
    made = evaluated("torch.nn.parallel.DistributedDataParallel(model)", SETUP)
    assert (made.known_as, made.distributed) == ("model", "ddp")
    assert (
        evaluated(
            "FSDP(net)", "from x import FSDP\nimport torch\nnet = torch.nn.Linear(1, 1)"
        ).distributed
        == "fsdp"
    )
    assert evaluated("torch.nn.DataParallel(model)", SETUP).distributed is None
    assert evaluated("DDP(unknown)").distributed == "ddp"


def test_copies_are_other_models():
    made = evaluated("copy.deepcopy(model)", SETUP + "import copy")
    assert isinstance(made, Net)
    assert made.known_as is None


def test_the_size_of_batches():
    assert evaluated("torch.utils.data.DataLoader(d, batch_size=8)", SETUP).batch == 8
    assert evaluated("torch.utils.data.DataLoader(d, 4)", SETUP).batch == 4
    assert evaluated("torch.utils.data.DataLoader(d, batch_size=n)", SETUP).batch is None


def test_what_is_loaded_comes_in_eval_mode():
    assert evaluated("transformers.AutoModel.from_pretrained('x')", IMPORTS).training is False
    assert facts(SETUP + "optimizer.step()", "model")["type"] == "Linear"
