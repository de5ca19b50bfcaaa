import pytest

from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Accelerator, Net, Optimizer, Scaler, Scheduler
from instep.check.execute.values import Unknown
from tests.check.execute.run import evaluated, events, executed, once, problems, value


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("x.backward()", Tensor),
        ("x.zero_grad()\nx.step()", Optimizer),
        ("optimizer.step()", Optimizer),
        ("self.opt_g.step()", Optimizer),
        ("scheduler.step()", Scheduler),
        ("x.get_last_lr()", Scheduler),
        ("scaler.step(o)", Scaler),
        ("x.unscale_(o)", Scaler),
        ("scaler.scale(loss)", Scaler),
        ("x.parameters()", Net),
        ("x.train()", Net),
        ("model.zero_grad()", Net),
        ("x.zero_grad()\nx.eval()", Net),
        ("accelerator.prepare(x)", Accelerator),
        ("net(x)", Net),
    ],
)
def test_use_tells_the_role(source, kind):
    receiver = source.partition("\n")[0].partition("(")[0]
    name = receiver if "." not in receiver else receiver.rpartition(".")[0]
    assert isinstance(value(f"{source}\nv = {name}"), kind)


@pytest.mark.parametrize("text", ["env.step(a)", "pbar.update(1)", "x.scale(2)", "self.train()"])
def test_what_tells_nothing_stays_unknown(text):
    assert isinstance(evaluated(text), Unknown)


def test_a_step_that_may_be_an_update_is_a_problem():
    assert any(
        "may be an update" in reason for reason in problems("loss.backward()\nengine_a.step()")
    )
    assert problems("loss.backward()\nenv.step()") == []


def test_what_counts_micro_batches_by_itself_is_opaque():
    assert ("opaque", None, "engine") in events("engine.backward(loss)\noptimizer.step()")


def test_a_model_is_the_one_it_was_made_of():
    _, scope = executed("import torch\nm = torch.nn.Linear(1, 1)\nw = wrap(m)\nw.train()")
    assert scope.names["w"].made is scope.names["m"]


def test_the_same_unknown_is_given_again():
    _, scope = executed("a = cfg.get('lr')\nb = cfg.get('lr')\nc = cfg.get('wd')")
    assert scope.names["a"] is scope.names["b"]
    assert scope.names["a"] is not scope.names["c"]


def test_losses_and_models_are_called_by_their_names():
    assert evaluated("criterion(a, b)").kind is None
    assert isinstance(evaluated("criterion(a, b)"), Tensor)
    assert isinstance(evaluated("info_nce_loss(a, b)"), Tensor)
    assert evaluated("info_nce_loss(a, b)").coupled
    assert isinstance(evaluated("build_model(cfg)"), Unknown)
    assert isinstance(evaluated("AdamW(params)"), Optimizer)


def test_batches_stay_batches():
    _, scope = executed("for x in loader:\n    a = x.to(d)\n    b = x.sum()\n    c = x.transform()")
    x = scope.names["x"]
    assert scope.names["a"] is x
    assert scope.names["b"].known_as == "sum()"
    assert scope.names["c"].drawn is x.drawn


def test_a_prepared_optimizer_goes_through_its_accelerator():
    source = """
accelerator = Accelerator(gradient_accumulation_steps=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(x).sum())
        optimizer.step()
"""
    source = "from accelerate import Accelerator\n" + source
    assert len(events(source, "step")) < len(events(source, "backward"))
    assert once(source, "backward") == [("backward", ("optimizer",), 0.5)]
