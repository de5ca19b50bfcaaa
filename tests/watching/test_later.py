import torch

from instep.watching.later import Later, sliced


class Event:
    done = False

    def query(self):
        return self.done


def test_what_is_on_the_host_is_here():
    assert Later(2.5).numbers == [2.5]
    assert Later(torch.tensor(3)).is_here


def test_what_is_on_its_way_is_not():
    later = Later(torch.ones(2))
    later._event = Event()
    assert not later.is_here
    later._event.done = True
    assert later.is_here


def test_a_slice_is_from_all_over():
    assert sliced(torch.arange(6).reshape(2, 3), 100).tolist() == [0, 1, 2, 3, 4, 5]
    assert sliced(torch.arange(1001), 10).numel() <= 10
    assert sliced(torch.arange(1001), 10)[-1] > 900
