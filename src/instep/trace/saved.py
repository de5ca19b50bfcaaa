"""What an operation has kept for its backward, as far as it can be read without a call of a hook.

`node._saved_other` unpacks: where the user's hooks are set (checkpoints, offloading), it computes a
forward once more, draws random numbers, or takes from a place what is there only once.
"""

from __future__ import annotations

from typing import Any


def saved(node: Any, name: str) -> Any:
    """Return a tensor that an operation has kept, or None if that is not known.

    It is not where it was packed by somebody's hook, was freed, or torch does not say which.
    """
    raw = getattr(node, f"_raw_saved_{name}", None)
    try:
        # What is packed may be a tensor, too: only the hook tells.
        return raw.data if raw is not None and raw.unpack_hook is None else None
    except (AttributeError, RuntimeError):  # torch does not say, or the hook is not one of Python's
        return None
