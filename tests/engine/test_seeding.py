"""Loaders with a seed for their epoch keep it; generators that go on are put back."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import instep


@pytest.mark.parametrize("is_dealt", [False, True])
def test_loaders_that_are_made_anew_in_every_epoch_keep_their_own_seeds(is_dealt):
    """From the third epoch on it is known that each has a seed of its own."""

    def loader(epoch):
        generator = torch.Generator().manual_seed(epoch)
        made = DataLoader(list(range(9)), shuffle=True, generator=generator)
        return instep.distributed.shard(made) if is_dealt else made

    def job():
        model = nn.Linear(1, 1)
        return instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))

    stepper, whole, saved = job(), [], []
    for epoch in range(6):
        whole.append([int(x) for x in stepper.batches(loader(epoch))])
        saved.append(stepper.state_dict())
    for epoch in (2, 3, 4):
        resumed = job()
        resumed.load_state_dict(saved[epoch])
        rest = [[int(x) for x in resumed.batches(loader(e))] for e in range(epoch + 1, 6)]
        assert rest == whole[epoch + 1 :]
        again = job()
        again.load_state_dict(resumed.state_dict())
        assert again.state_dict()["seeded_anew"]


def test_loaders_that_take_turns_are_not_taken_for_new_ones():
    def loaders():
        return [
            DataLoader(list(range(9)), shuffle=True, generator=torch.Generator().manual_seed(seed))
            for seed in (1, 2)
        ]

    model = nn.Linear(1, 1)
    stepper = instep.Stepper(model, torch.optim.SGD(model.parameters(), lr=0.1))
    both = loaders()
    for epoch in range(6):
        list(stepper.batches(both[epoch % 2]))
        assert not stepper.state_dict()["seeded_anew"]
