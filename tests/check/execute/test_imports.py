import pytest

from tests.check.execute.run import events

HELPER = """
def update(loss, optimizer):
    loss.backward()
    optimizer.step()
"""
USE = """
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    {call}(model(x).sum(), optimizer)
"""


@pytest.mark.parametrize(
    ("statement", "call", "file"),
    [
        ("from helpers import update", "update", "helpers.py"),
        ("from helpers import update as up", "up", "helpers.py"),
        ("from helpers import *", "update", "helpers.py"),
        ("import helpers", "helpers.update", "helpers.py"),
        ("import lib.helpers as h", "h.update", "lib/helpers.py"),
        ("from lib import helpers", "helpers.update", "lib/helpers.py"),
        ("from .helpers import update", "update", "helpers.py"),
        ("from . import helpers", "helpers.update", "helpers.py"),
        ("from lib.helpers import update", "update", "src/lib/helpers.py"),
    ],
)
def test_helpers_of_the_project_are_followed(tmp_path, statement, call, file):
    (tmp_path / ".git").mkdir()
    source = f"import torch\n{statement}\n" + USE.format(call=call)
    found = events(source, "backward", "step", files={file: HELPER}, folder=tmp_path)
    assert found[:2] == [("backward", ("optimizer",), 1.0), ("step", "optimizer", None)]


def test_names_pass_through_a_package(tmp_path):
    files = {"lib/__init__.py": "from .helpers import update", "lib/helpers.py": HELPER}
    source = "import torch\nfrom lib import update\n" + USE.format(call="update")
    assert events(source, "step", files=files, folder=tmp_path)


def test_modules_that_import_each_other(tmp_path):
    files = {"a.py": "import b\n" + HELPER, "b.py": "import a\nloss = 1"}
    source = "import torch\nfrom a import update\n" + USE.format(call="update")
    assert events(source, "step", files=files, folder=tmp_path)


def test_an_imported_module_is_not_the_main_one(tmp_path):
    files = {"helpers.py": HELPER + "\nif __name__ == '__main__':\n    optimizer.zero_grad()"}
    source = "import torch\nfrom helpers import update\n" + USE.format(call="update")
    assert events(source, "zero", files=files, folder=tmp_path) == []


def test_what_is_not_in_the_project_is_a_reference():
    source = """
import torch.optim as o
from torch import nn as n
m = n.Linear(1, 1)
opt = o.SGD(m.parameters())
opt.step()
"""
    assert events(source) == [("step", "opt", None)]


def test_a_package_that_is_being_imported_is_not_asked_for_its_modules(tmp_path):
    base = "from . import tools\nimport torch\nclass Base:\n    def run(self, loss, optimizer):\n"
    files = {
        "pack/__init__.py": "from .middle import Middle\n",
        "pack/tools.py": "def clip_grad(): pass\n",
        "pack/base.py": base + "        loss.backward()\n        optimizer.step()\n",
        "pack/middle.py": "from .base import Base\nclass Middle(Base):\n    loss = 0\n",
    }
    source = (
        "from pack.base import Base\nfrom pack.middle import Middle\n"
        "class Mine(Middle):\n    pass\nMine().run(loss, optimizer)\n"
    )
    assert events(source, "step", files=files, folder=tmp_path)
