"""instep keeps PyTorch training loops in step: zero_grad → forward → backward → clip → step.

Public names are loaded on first use, so that importing instep imports no torch.

>>> import instep
>>> instep.Trace()
Trace(0 events)
"""

from __future__ import annotations

import importlib

# Not from `typing`: `python -m instep` comes here before it has let go of the current folder, in
# which somebody may have put a file of that name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from instep.engine.stepper import Stepper
    from instep.engine.update import Update
    from instep.engine.verify import Verification, verify
    from instep.engine.window import Window
    from instep.errors import InstepError, InstepWarning
    from instep.fast.fuse import fuse, unfuse
    from instep.splits.micro import Micro
    from instep.splits.patches import Patches
    from instep.splits.sampling import RandomPatches
    from instep.splits.stitch import stitch
    from instep.trace import Trace
    from instep.watching.job import Job, watch
    from instep.watching.ledger import ledger

__version__ = "0.1.0"

_HOME = {
    "InstepError": "instep.errors",
    "InstepWarning": "instep.errors",
    "Job": "instep.watching.job",
    "Micro": "instep.splits.micro",
    "Patches": "instep.splits.patches",
    "RandomPatches": "instep.splits.sampling",
    "Stepper": "instep.engine.stepper",
    "Trace": "instep.trace",
    "Update": "instep.engine.update",
    "Verification": "instep.engine.verify",
    "Window": "instep.engine.window",
    "fuse": "instep.fast.fuse",
    "ledger": "instep.watching.ledger",
    "stitch": "instep.splits.stitch",
    "unfuse": "instep.fast.fuse",
    "verify": "instep.engine.verify",
    "watch": "instep.watching.job",
}
_MODULES = ("distributed", "errors", "testing", "trace")

__all__ = [
    "InstepError",
    "InstepWarning",
    "Job",
    "Micro",
    "Patches",
    "RandomPatches",
    "Stepper",
    "Trace",
    "Update",
    "Verification",
    "Window",
    "fuse",
    "ledger",
    "stitch",
    "unfuse",
    "verify",
    "watch",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"instep.{name}")
    if name in _HOME:
        try:
            module = importlib.import_module(_HOME[name])
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            message = f"instep.{name} needs torch; install it with: pip install 'instep[torch]'"
            raise ModuleNotFoundError(message, name="torch") from error
        return getattr(module, name)
    message = f"module 'instep' has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
