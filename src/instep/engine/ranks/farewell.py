"""The end of a program: a moment later, so that gloo's threads have let go of what was sent last.

A thread of gloo says that a collective is done, and lets go of its tensors after that, for which
it needs Python. If Python is on its way out by then, torch aborts the process ("terminate called
without an active exception"): one in some hundred jobs whose last act is a collective (a save is
one), where there is more to do than there are cores. It is the same without instep. Who sleeps lets
them have their turn.
"""

from __future__ import annotations

import atexit
import functools
import time

MOMENT = 0.05
"""Seconds: many turns of a thread, and nothing to the end of a job."""


@functools.cache
def wait_at_exit() -> None:
    """Let the end of this program wait for a moment, once."""
    atexit.register(time.sleep, MOMENT)
