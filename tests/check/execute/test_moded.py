import pytest

from instep.check.execute.moded import has_mode
from tests.check.execute.run import value

NETS = """
import torch
import torchvision
class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
class Dropped(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.layer = torch.nn.Dropout(rate)
class Holder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Dropped(0.5)
class Heir(Dropped):
    pass
class Endless(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Endless()
"""


@pytest.mark.parametrize(
    ("made", "seen"),
    [
        ("Plain()", False),
        ("Dropped(0.5)", True),
        ("Holder()", True),
        ("Heir(0.1)", True),
        ("Endless()", False),
        ("torch.nn.BatchNorm1d(2)", True),
        ("torch.nn.Linear(2, 2)", False),
        ("torchvision.models.resnet18()", True),
        ("torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))", True),
    ],
)
def test_what_is_seen_to_notice_the_mode(made, seen):
    assert has_mode(value(NETS + f"net = {made}\n", "net")) is seen
