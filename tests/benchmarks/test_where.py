"""Kernels are sorted by what they are for, and what lies between them is seen."""

from __future__ import annotations

import pytest

from benchmarks.gpu.where import BETWEEN, OTHERS, Kernel, by_kind

NAMES = {
    "nvjet_sm90_tss_128x256_64x4_2x1_v_badd_coopA_NTN": "matrix products",
    "void cublasLt::splitKreduce_kernel<32, 16>": "matrix products",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop": "attention",
    "void cudnn::fusion::convert_dq_to_16bits<true>": "attention",
    "update": "norm and update of the close",
    "squares": "norm and update of the close",
    "Memcpy DtoD (Device -> Device)": "copies, rows that wait for a shared product among them",
    "memcpy128": "copies, rows that wait for a shared product among them",
    "triton_poi_fused_gelu_update_3": OTHERS,
}


@pytest.mark.parametrize("name", NAMES)
def test_kernels_are_known_by_their_names(name):
    found = by_kind([Kernel(name, 0, 2000)])
    assert {kind: took for kind, took in found.items() if took} == {NAMES[name]: 2.0}


def test_kernels_that_overlap_leave_nothing_between():
    found = by_kind([Kernel("b", 500, 2000), Kernel("a", 0, 1000), Kernel("c", 2500, 3000)])
    assert found[OTHERS] == 3.0
    assert found[BETWEEN] == 0.5
