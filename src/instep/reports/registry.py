"""The formats by the names that `--output-format` knows."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from instep.reports.options import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from instep.reports.options import Options
    from instep.reports.positions import Source
    from instep.rules import Finding

FORMATS: dict[str, str] = {
    "text": "instep.reports.text",
    "json": "instep.reports.json_",
    "sarif": "instep.reports.sarif",
    "github": "instep.reports.github",
}
"""Format names and the modules that render them, in the order in which help lists them."""


if TYPE_CHECKING:  # slow to define, and nobody asks for it at run time

    class Renderer(Protocol):
        """Turns findings into the text of a report."""

        def __call__(
            self, findings: Iterable[Finding], source: Source, options: Options = ..., /
        ) -> str:
            """Return the whole report; it ends with a newline unless it is empty."""


def renderer(name: str) -> Renderer:
    r"""Return the renderer of a format; KeyError if there is no such format.

    >>> renderer("json")([], lambda path, cell: None)
    '[]\n'
    """
    # Imported on demand: the command line needs one of them, and its help none.
    return cast("Renderer", import_module(FORMATS[name]).render)


def render(
    name: str, findings: Iterable[Finding], source: Source, options: Options = DEFAULT
) -> str:
    """Return the report in the format of that name.

    >>> render("github", [], lambda path, cell: None)
    ''
    """
    return renderer(name)(findings, source, options)
