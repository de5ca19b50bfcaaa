import pytest

from instep.check.execute.outside import CALLS
from instep.check.execute.tensors import Tensor
from instep.check.execute.values import ARRAY, Unknown
from tests.check.execute.run import SETUP, evaluated, events, facts, value


def test_the_table_of_calls_is_filled():
    assert {"clip_grad_norm_", "autocast", "Accelerator", "tqdm"} <= set(CALLS)


@pytest.mark.parametrize("name", ["autocast", "GradScaler"])
def test_old_names_are_noted(name):
    source = SETUP + f"torch.cuda.amp.{name}()\ntorch.amp.{name}()\noptimizer.step()"
    assert events(source, "called") == [("called", f"torch.cuda.amp.{name}")]


def test_functional_losses():
    made = evaluated(
        "F.cross_entropy(model(x), y, reduction='sum')", SETUP + "import torch.nn.functional as F"
    )
    assert (made.reduction, made.kind) == ("sum", "cross_entropy")
    made = evaluated("F.softmax(model(x))", SETUP + "import torch.nn.functional as F")
    assert isinstance(made, Tensor)
    assert made.reduction is None


def test_where_something_is_made_is_where_it_is_in_the_trace():
    kinds = events(SETUP + "optimizer.step()", "created", "step")
    assert kinds.index(("created", "optimizer", "optimizer")) == len(kinds) - 2
    assert facts(SETUP + "optimizer.step()", "optimizer")["type"] == "torch.optim.SGD"


def test_the_rest_is_unknown():
    assert isinstance(evaluated("os.path.join(a, b)", "import os"), Unknown)


def test_what_numpy_makes_holds_numbers():
    assert ARRAY in value("import numpy as np\nv = np.zeros(3)\n").attrs
    assert ARRAY not in value("import torch\nv = torch.zeros(3)\n").attrs
