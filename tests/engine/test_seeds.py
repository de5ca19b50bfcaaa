from __future__ import annotations

import torch

from instep.engine.seeds import BLOCK, VALUES_KEPT, Seeds

ONE = torch.ones((), dtype=torch.float64)


def test_no_memory_is_handed_out_twice():
    seeds = Seeds()
    taken = [seeds.take(0.25, ONE) for _ in range(3 * BLOCK)]
    assert len({seed.data_ptr() for seed in taken}) == len(taken)
    assert all(seed.shape == () and seed.item() == 0.25 for seed in taken)
    for seed in taken:
        seed.mul_(7)
    assert seeds.take(0.25, ONE).item() == 0.25


def test_seeds_follow_their_loss():
    seeds = Seeds()
    for like in (ONE, ONE.float(), ONE.bfloat16(), ONE.to("meta"), ONE):
        seed = seeds.take(2.0, like)
        assert seed.dtype == like.dtype
        assert seed.device == like.device


def test_ever_new_values_do_not_pile_up():
    seeds = Seeds()
    for value in range(10 * VALUES_KEPT):
        assert seeds.take(float(value), ONE).item() == value
    assert len(seeds._blocks) <= VALUES_KEPT
