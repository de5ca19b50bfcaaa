from instep.check.execute.tensors import Tensor
from instep.check.execute.things import Net, Param
from instep.check.execute.values import Ref, Unknown
from tests.check.execute.run import SETUP, evaluated, events, executed, value

CLASS = """
class Base:
    rate = 3
    def half(self):
        return self.whole / 2
class Trainer(Base):
    def __init__(self, whole):
        self.whole = whole
t = Trainer(4)
"""


def test_names_of_modules_are_joined():
    made = evaluated("optim.Adam", "import torch.optim as optim")
    assert isinstance(made, Ref)
    assert made.path == "torch.optim.Adam"


def test_objects_have_what_they_were_given_and_what_their_classes_hold():
    assert evaluated("t.whole", CLASS) == 4
    assert evaluated("t.rate", CLASS) == 3
    assert evaluated("t.half()", CLASS) == 2


def test_a_missing_attribute_is_unknown_but_always_the_same():
    _, scope = executed(CLASS + "a = t.missing\nb = t.missing")
    assert isinstance(scope.names["a"], Unknown)
    assert scope.names["a"] is scope.names["b"]
    assert scope.names["a"].known_as == "self.missing"


def test_defaults_of_settings_are_no_facts():
    source = "@dataclass\nclass Config:\n    steps: int = 4\nc = Config()\nd = Config(steps=8)"
    assert isinstance(evaluated("c.steps", source), Unknown)
    assert evaluated("d.steps", source) == 8


def test_properties_are_called():
    source = "class A:\n    @property\n    def n(self):\n        return 5\na = A()"
    assert evaluated("a.n", source) == 5


def test_parts_of_models_are_models():
    made = value(SETUP + "v = model.encoder")
    assert isinstance(made, Net)
    assert made.part_of.known_as == "model"
    assert value(SETUP + "v = model.module") is not made
    assert value(SETUP + "a = model\nv = a.module").known_as == "model"
    assert isinstance(value(SETUP + "v = model.config"), Unknown)
    assert isinstance(value(SETUP + "v = model.loss_value"), Tensor)
    assert value(SETUP + "v = model.training") is True


def test_optimizers_hold_their_parameters():
    (group,) = evaluated("optimizer.param_groups", SETUP).items
    assert isinstance(group, Param)
    assert group.optimizer.known_as == "optimizer"


def test_reading_a_gradient_is_noted():
    source = SETUP + "for p in model.parameters():\n    n = p.grad.norm()\noptimizer.step()"
    assert ("grad_read", ("optimizer",), False) in events(source)
    source = source.replace("n = p.grad.norm()", "n = p.grad.norm() if p.grad is not None else 0")
    assert ("grad_read", ("optimizer",), True) in events(source)


def test_an_accelerator_says_whether_it_synchronises():
    setup = "import accelerate\naccelerator = accelerate.Accelerator(gradient_accumulation_steps=4)"
    assert evaluated("accelerator.gradient_accumulation_steps", setup) == 4
    assert evaluated("accelerator.sync_gradients", setup) is True


def test_a_method_can_be_kept_and_called_later():
    assert events(SETUP + "s = optimizer.step\ns()") == [("step", "optimizer", None)]


def test_a_number_has_unknown_attributes():
    assert isinstance(evaluated("(3).real"), Unknown)
