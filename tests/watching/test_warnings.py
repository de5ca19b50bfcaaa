"""What torch warns of is told at the user's line, watched or not."""

import warnings

import pytest

from tests.watching.jobs import run

BEGIN = """
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
SCHEDULER = f"""{BEGIN}
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
"""
WARNED = {
    "a scheduler first": f"{SCHEDULER}\nscheduler.step()\noptimizer.step()",
    "a scheduler in a function": f"{SCHEDULER}\ndef update():\n    scheduler.step()\nupdate()",
    "an epoch for a scheduler": f"{SCHEDULER}\noptimizer.step()\nscheduler.step(3)",
    "a scheduler for a metric": f"""{BEGIN}
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
optimizer.step()
plateau.step(1.0, 3)
""",
    "a backward with an old word": f"""{BEGIN}
def go():
    loss = model(torch.ones(1, 4)).sum()
    torch.autograd.backward(loss, grad_variables=torch.ones(()))
go()
""",
    "a backward among modes": f"""{BEGIN}
from torch.utils._python_dispatch import TorchDispatchMode
class Counts(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {{}}))
with Counts():
    loss = model(torch.ones(1, 4)).sum()
    torch.autograd.backward(loss, grad_variables=torch.ones(()))
""",
    "a backward in another thread": f"""{BEGIN}
import threading
def go():
    loss = model(torch.ones(1, 4)).sum()
    torch.autograd.backward(loss, grad_variables=torch.ones(()))
model(torch.ones(1, 4)).sum().backward()
thread = threading.Thread(target=go)
thread.start()
thread.join()
""",
    "nothing to clip": f"""{BEGIN}
from torch.nn.utils import clip_grad_norm_
clip_grad_norm_((p for p in ()), 1.0)
""",
    "a clip by an old name": f"""{BEGIN}
model(torch.ones(1, 4)).sum().backward()
torch.nn.utils.clip_grad_norm(model.parameters(), 1.0)
""",
    "old names of mixed precision": """
scaler = torch.cuda.amp.GradScaler()
with torch.cuda.amp.autocast():
    pass
""",
    "a step that takes a scaler": f"""{BEGIN}
class Takes(torch.optim.SGD):
    _step_supports_amp_scaling = True
    def step(self, closure=None, grad_scaler=None):
        return None
optimizer, scaler = Takes(model.parameters()), torch.amp.GradScaler("cpu")
scaler.scale(model(torch.ones(1, 4)).sum()).backward()
scaler.step(optimizer)
""",
    "a parallel model that is cleared": f"""{BEGIN}
model._is_replica = True
model.zero_grad()
""",
    "a stream that is longer than it says": """
class Numbers(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(6))
    def __len__(self):
        return 3
    def __repr__(self):
        return "Numbers"
loader = torch.utils.data.DataLoader(Numbers())
assert len(loader) == 3
for number in loader:
    pass
""",
}


def warned(source, *, watched):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(source, watched=watched)
    return sorted((each.filename, each.lineno, str(each.message)) for each in caught)


@pytest.mark.parametrize("name", WARNED)
def test_warnings_name_the_users_line(name):
    plain = warned(WARNED[name], watched=False)
    assert plain
    assert {file for file, _, _ in plain} >= {"train.py"}
    assert warned(WARNED[name], watched=True) == plain
