"""The cases of tests/distributed once more, over groups that are held to the rules of NCCL.

Each is the test of its own module: what it asserts there, it asserts here, and `HeldCrew` asserts
that no rank has broken a rule and that all have called the same in the same order.
"""

from __future__ import annotations

from tests.distributed import (
    test_batches,
    test_corners,
    test_counting,
    test_devices,
    test_drift,
    test_failures,
    test_gathering,
    test_hybrid,
    test_interrupts,
    test_leaving,
    test_memory,
    test_microbatch,
    test_replaced,
    test_saving,
    test_several,
    test_streams,
    test_twopass,
    test_windows,
)
from tests.distributed.again import again, cases

WHOLE = [test_windows, test_twopass, test_gathering]
"""Modules all of whose cases run each time; of the others, those of `SHORT`: the rest is slow."""

SHORT = {
    test_batches: ["loaders_that_end_earlier", "where_every_backward_needs_all_ranks"],
    test_corners: ["headers_may_be_long", "a_part_of_the_ranks"],
    test_counting: [
        "a_wrong_guess_of_what_there_is_changes_nothing",
        "sparse_gradients_are_gathered",
        "all_ranks_skip_together_and_have_one_scale",
        "narrow_parameters_have_wide_sums",
    ],
    test_devices: ["a_step_that_is_skipped", "out_of_memory_on_one_rank", "checkpoints"],
    test_drift: ["last_bits_that_differ_are_said_once"],
    test_failures: [
        "a_window_that_all_ranks_discard",
        "loops_that_all_ranks_leave",
        "an_interrupt_on_one_rank_ends_all",
        "a_failure_is_heard_beside_headers_that_are_too_long",
        "a_hook_on_a_sharded_parameter_that_raises_is_told",
    ],
    test_hybrid: [],
    test_interrupts: [],
    test_leaving: [],
    test_memory: ["a_rank_without_any_memory_ends_all", "a_rank_without_samples"],
    test_microbatch: [
        "pieces_of_a_batch_need_not_be_as_many",
        "the_policy_of_fsdp_is_kept",
    ],
    test_replaced: [],
    test_saving: [
        "in_the_middle_of_a_window",
        "a_full_disk_on_one_rank_is_an_error_on_all",
        "a_save_that_fails_in_a_window_is_known_to_all",
        "a_signal_to_one_rank_saves_all",
    ],
    test_several: [
        "a_list_updates_together",
        "ranks_that_use_different_optimizers",
        "all_that_are_open_on_one_rank_alone_close_at_its_end",
    ],
    test_streams: [],
}

_DISPATCHED = "it counts what goes through torch's dispatcher, past which a group in Python is."
_ALONE = "a rank is alone in its last call by intention; of NCCL, the watchdog ends such a process."
LEFT_OUT = {
    "ddp_adds_every_element_once": _DISPATCHED,
    "fsdp_adds_every_element_once": _DISPATCHED,
    "large_gradients_travel_alone_and_small_ones_in_buckets": _DISPATCHED,
    "a_window_that_one_rank_discards": _ALONE,
    "a_rank_that_hangs_is_named": _ALONE,
    "a_rank_that_does_not_come_to_load_is_named": _ALONE,
    "a_rank_that_hangs_while_saving_is_an_error": _ALONE,
    "who_goes_on_is_told_that_it_cannot_and_the_others_why": _ALONE,
    "an_interrupt_that_comes_while_a_rank_waits_at_a_close": _ALONE,
}
"""Cases that cannot be run here, and why."""


for _module in (*WHOLE, *SHORT):
    _short = _module.__name__.rpartition("test_")[2]
    for _name, _test in cases(_module).items():
        if _name not in LEFT_OUT:
            _slow = _module in SHORT and _name not in SHORT[_module]
            globals()[f"test_{_short}_{_name}"] = again(_test, slow=_slow)


def test_every_name_above_is_that_of_a_case():
    known = {name for module in (*WHOLE, *SHORT) for name in cases(module)}
    assert set(LEFT_OUT) <= known
    for module, names in SHORT.items():
        assert set(names) <= set(cases(module))
