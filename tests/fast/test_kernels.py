"""Kernels compile for the device they are for, though no such device is here.

The interpreter checks their arithmetic, and takes much that a compiler does not. So every launch of
the fast paths is compiled for sm_90, down to the binary, in a process without the interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from instep.fast.flat import MOST_TERMS
from instep.fast.rules import ADAM, LION, SGD

pytest.importorskip("triton")

TERMS = [str(count) for count in range(MOST_TERMS + 1)]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    cache = str(tmp_path_factory.mktemp("triton"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fast.compiling"],
        cwd=Path(__file__).parents[2],
        env=kept | {"TRITON_CACHE_DIR": cache},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def made(found):
    return found["made"]


def of(made, kernel, types=None, **constants):
    """Return what was compiled of a kernel, with these types and constants."""
    return [
        one
        for one in made
        if one["kernel"] == kernel
        and (types or {}).items() <= one["types"].items()
        and {name: str(value) for name, value in constants.items()}.items()
        <= one["constants"].items()
    ]


def test_no_kernel_is_left_out(found):
    assert set(found["kernels"]) == {one["kernel"] for one in found["made"]}
    assert found["kernels"] == ["compare", "renew", "squares", "update"]


def test_everything_is_compiled_to_a_binary_for_the_device(made):
    assert all(one["target"] == ["sm_90a"] and one["bytes"] > 1000 for one in made)


def test_nothing_is_spilled_from_registers(made):
    assert {one["spilled"] for one in made} == {0}
    # The device has 65,536 for each of its processors: four programs of 128 threads at least.
    assert max(one["registers"] for one in made) <= 128


@pytest.mark.parametrize("rule", [ADAM, SGD, LION], ids=["Adam", "SGD", "Lion"])
@pytest.mark.parametrize("terms", TERMS)
def test_every_rule_with_every_number_of_buffers(made, rule, terms):
    types = {"parameters": "*fp32", "gradients": "*fp32", "narrow": "*fp32"}
    found = of(made, "update", types, KIND=rule.kind, TERMS=terms, NARROW=False)
    assert Counter(one["constants"]["MOMENTS"] for one in found) == (
        {"0": 1, "1": 1} if rule is SGD else {str(len(rule.states)): 1}
    )


@pytest.mark.parametrize(
    ("parameters", "gradients"),
    [
        ("*bf16", "*fp32"),
        ("*fp16", "*fp32"),
        ("*bf16", "*bf16"),
        ("*fp16", "*fp16"),
        ("*fp64", "*fp64"),
        ("*fp32", "*fp64"),
    ],
)
def test_every_type_that_parameters_and_sums_may_have(made, parameters, gradients):
    types = {"parameters": parameters, "gradients": gradients, "first": parameters}
    kinds = {one["constants"]["KIND"] for one in of(made, "update", types, TERMS=0)}
    assert kinds == {"0", "1", "2"}
    for terms in TERMS:
        assert of(made, "update", types, KIND=0, TERMS=terms)
        assert of(made, "squares", {"gradients": gradients}, TERMS=terms)


@pytest.mark.parametrize("rule", [ADAM, SGD, LION], ids=["Adam", "SGD", "Lion"])
def test_the_narrow_copy_is_written_along(made, rule):
    types = {"parameters": "*fp32", "narrow": "*bf16"}
    assert of(made, "update", types, KIND=rule.kind, NARROW=True)


def test_each_buffer_is_read_once_and_none_is_written(made):
    """A thread has eight elements of a block: two loads of four words for each buffer."""
    norms = [of(made, "squares", {"shares": "*fp32", "gradients": "*fp32"}, TERMS=t) for t in TERMS]
    assert [found[0]["loads"] for found in norms] == [2 * max(int(t), 1) for t in TERMS]
    assert {found[0]["stores"] for found in norms} == {0}
    types = {"parameters": "*fp32", "gradients": "*fp32"}
    updates = [of(made, "update", types, KIND=0, TERMS=t, NARROW=False) for t in TERMS]
    # Beside gradients, the parameters and two moments are read and written.
    assert [found[0]["loads"] for found in updates] == [6 + 2 * max(int(t), 1) for t in TERMS]
    assert {found[0]["stores"] for found in updates} == {6}


def test_numbers_that_are_compiled_apart(made):
    assert {one["types"]["blocks"] for one in of(made, "squares")} == {"i32", "constexpr"}
    assert {one["types"]["count"] for one in of(made, "compare")} == {"i32", "constexpr"}
    assert {one["types"]["length"] for one in of(made, "renew")} == {"i32", "i64"}
