"""Compile every launch of the fast paths for a Hopper device, where there may be none.

`python -m tests.fast.compiling` makes the calls that the engine makes, on tensors of the host, with
a driver in place of Triton's that only says which device it is. Triton derives types and constants
from the arguments, as on a device, and compiles down to the binary; nothing is launched. What was
compiled is written to the standard output as JSON. It must run without Triton's interpreter.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pkgutil
import re
import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import instep.fast
from instep.fast.copies import Copy
from instep.fast.flat import MOST_TERMS, Flat
from instep.fast.rules import LION, Rule, rule_of

TYPES = {
    "float32": (torch.float32, torch.float32),
    "bfloat16, sums in float32": (torch.bfloat16, torch.float32),
    "float16, sums in float32": (torch.float16, torch.float32),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "float16": (torch.float16, torch.float16),
    "float64": (torch.float64, torch.float64),
    "float32, sums in float64": (torch.float32, torch.float64),
}
RULES = {
    "AdamW": torch.optim.AdamW,
    "SGD": torch.optim.SGD,
    "SGD, momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Lion": torch.optim.AdamW,
}


class Hopper:
    """As much of a driver as compiling asks for."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


class Compiler:
    """Stands in for a launch: compiles, and notes what came out."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self._run = JITFunction.run
        triton.knobs.nvidia.dump_ptxas_log = True
        driver.set_active(Hopper())

        def run(kernel: JITFunction, *args: Any, **options: Any) -> None:
            self.note(kernel, *args, **options)

        JITFunction.run = run

    def note(self, kernel: JITFunction, *args: Any, **options: Any) -> None:
        log = io.StringIO()
        with contextlib.redirect_stdout(log):
            compiled = self._run(kernel, *args, **options | {"warmup": True})
        if compiled.hash in self.made:
            return
        names = kernel.arg_names
        ptx, said = compiled.asm["ptx"], log.getvalue()
        self.made[compiled.hash] = {
            "kernel": kernel.__name__,
            "types": dict(compiled.src.signature),
            "constants": {names[i]: str(value) for (i,), value in compiled.src.constants.items()},
            "target": re.findall(r"^\.target (\S+)", ptx, re.MULTILINE),
            "bytes": len(compiled.asm["cubin"]),
            "registers": int(*re.findall(r"Used (\d+) registers", said)),
            "spilled": sum(map(int, re.findall(r"(\d+) bytes spill", said))),
            # Four words at a time: what is read and written of the buffers themselves.
            "loads": len(re.findall(r"\bld\.global\S*\.v4\.b32", ptx)),
            "stores": len(re.findall(r"\bst\.global\S*\.v4\.b32", ptx)),
        }


def flat_of(types: str, rule: str, sizes: tuple[int, ...] = (1500, 3000)) -> Flat:
    dtype, sums_in = TYPES[types]
    members = [torch.nn.Parameter(torch.zeros(n, dtype=dtype)) for n in sizes]
    optimizer = RULES[rule](members)
    known = LION if rule == "Lion" else rule_of(optimizer)
    assert isinstance(known, Rule)
    group = optimizer.param_groups[0]
    return Flat(optimizer, group, members, rule=known, gradient_type=sums_in)


def close(flat: Flat, terms: int) -> None:
    """Make the launches of a close, with that many buffers beside the window's own."""
    parts = [flat.gradients] * terms
    shares = torch.ones(terms, dtype=flat.wide)
    flat.take_state()
    flat.norm(parts, shares if terms else None)
    flat.launch(torch.ones((), dtype=flat.wide), torch.ones(3 + terms, dtype=flat.wide), parts)


def every_close() -> None:
    for types in TYPES:
        for rule in RULES:
            flat = flat_of(types, rule)
            # A rule does not see where a gradient came from: types and rules are tried apart.
            for terms in range(MOST_TERMS + 1) if rule == "AdamW" or types == "float32" else (0,):
                close(flat, terms)
            if types == "float32":
                flat.keep_narrow()
                close(flat, 0)
    # Whole numbers that are 1 or multiples of 16 are compiled apart.
    for blocks in (1, 16):
        flat_of("float32", "AdamW", (blocks * 1024,)).norm()


def every_copy() -> None:
    from instep.fast.kernels import renew

    for sizes in ((1,), (5,), (16,), (1500, 3000)):
        copy = Copy(flat_of("float32", "AdamW", sizes))
        copy._renew_there()
    flat, found = copy._flat, copy._found
    # More elements than 32 bits can count.
    renew[(1,)](flat.parameters, flat.narrow, 2**31 + 1024, found, 1, BLOCK=1024)


def kernels() -> list[str]:
    """Return the names of all kernels in the package; those with an underscore are parts of one."""
    found = set()
    for module in pkgutil.iter_modules(instep.fast.__path__, "instep.fast."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, JITFunction) and not name.startswith("_"):
                found.add(value.__name__)
    return sorted(found)


if __name__ == "__main__":
    compiler = Compiler()
    every_close()
    every_copy()
    json.dump({"kernels": kernels(), "made": list(compiler.made.values())}, sys.stdout)
