"""Models that leave the job while they are watched: saved, copied, scripted, handed on."""

import copy
import gc
import io
import pickle

import pytest
import torch
from torch import nn

import instep


@pytest.fixture
def trained():
    """Give a model in the middle of a watched job."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with instep.watch(live=False) as job:
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        yield model
    assert job.seam.faults == []
    assert all(hook is print_nothing for hook in model._forward_pre_hooks.values())


def test_a_model_is_saved_without_our_hooks(trained):
    assert trained._forward_pre_hooks
    file = io.BytesIO()
    torch.save(trained, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    again = pickle.loads(pickle.dumps(trained))
    x = torch.randn(3, 4)
    for other in (loaded, again, copy.deepcopy(trained)):
        assert not other._forward_pre_hooks
        assert not other._forward_pre_hooks_with_kwargs
        assert torch.equal(other(x), trained(x))
    assert trained._forward_pre_hooks


def test_hooks_of_the_users_own_are_saved(trained):
    trained.register_forward_pre_hook(print_nothing)
    assert list(copy.deepcopy(trained)._forward_pre_hooks.values()) == [print_nothing]


def print_nothing(module, args):
    del module, args


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_model_can_be_scripted(trained):
    x = torch.randn(3, 4)
    assert torch.equal(torch.jit.script(trained)(x), trained(x))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("of", ["model", "copy"])
def test_scripted_models_take_no_hooks(of, capsys):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    gc.collect()  # what is older comes later when one asks what is alive
    scripted = torch.jit.script(model)  # alive, with the parameters of the model
    trained = scripted if of == "copy" else model
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    with instep.watch() as job:
        for _ in range(6):
            trained(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    assert job.seam.faults == []
    assert [finding.code for finding in job.findings] == ["INS101"]
    assert "INS101" in capsys.readouterr().err
    assert [held.model for held in job.book.parameters.values()][:1] == ["model"]
