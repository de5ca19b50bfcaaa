"""Notebooks that Colab has written into Python files: what is not Python in them stays as it was.

Colab's "Download .py" keeps `!pip install` and `%matplotlib` as they stand in the cells, so that
the file does not parse. They are hidden as in a notebook, and come back when it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.check.magics import neutralise, revive
from instep.check.units import PlainOrigin

if TYPE_CHECKING:
    from instep.check.units import Splice

__all__ = ["ExportOrigin", "neutralise"]


class ExportOrigin(PlainOrigin):
    """The file of an exported notebook."""

    def splices(self, new_text: str) -> list[Splice]:
        """Bring the magics back, and replace everything."""
        return super().splices(revive(new_text))
