"""What can be typed. Nothing but argparse is imported here, so that help comes at once."""

from __future__ import annotations

import argparse
from typing import NoReturn

from instep import __version__
from instep.errors import CheckError

_FORMATS = ("text", "json", "sarif", "github")  # a test holds it to those of the reports


class Parser(argparse.ArgumentParser):
    """A parser whose complaints have the form of all errors."""

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed."""
        asked = self.prog if " " in self.prog else f"{self.prog} COMMAND"
        raise CheckError(
            f"{message.rstrip('.')}.{_nearest(message)}",
            why="what is not understood is not guessed.",
            fix=f"{asked} --help lists what can be said.",
            more="checking",
        )


def build() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="instep", description="Keeps PyTorch training loops in step.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"instep {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _check(commands)
    _explain(commands)
    rules = commands.add_parser("rules", help="list the rules of the checker", allow_abbrev=False)
    rules.add_argument("--output-format", choices=("text", "json"), default="text")
    return parser


def _explain(commands: argparse._SubParsersAction[Parser]) -> None:
    explain = commands.add_parser(
        "explain",
        help="read about a rule, an error or a symptom",
        description="Show the page of a rule or of an error message; without a name, list all.",
        allow_abbrev=False,
    )
    explain.add_argument("topic", nargs="?", help="a rule's name or code, or a page")
    explain.add_argument(
        "--symptom",
        metavar="WORDS",
        help='what you see, as in "loss oscillates": lists the rules and pages that may explain it',
    )


def _check(commands: argparse._SubParsersAction[Parser]) -> None:
    check = commands.add_parser(
        "check",
        help="read training loops, say what is wrong, and fix it",
        description="Read training loops without running them, and say what is wrong with them.",
        epilog="Exit status: 0 nothing found, 1 something found at or above --severity, "
        "2 could not run. Settings are read from [tool.instep] in pyproject.toml; "
        "`instep explain checking` tells more.",
        allow_abbrev=False,
    )
    check.add_argument(
        "paths",
        nargs="*",
        default=["."],
        metavar="PATH",
        help="files and folders; - is standard input (default: this folder)",
    )
    _what(check.add_argument_group("what is checked"))
    _fixes(check.add_argument_group("fixes"))
    _output(check.add_argument_group("output"))
    running = check.add_argument_group("running")
    running.add_argument("-j", "--jobs", type=int, metavar="N", help="processes (default: cores)")
    running.add_argument("--no-cache", action="store_true", help="forget earlier runs")
    running.add_argument("--cache-dir", metavar="DIR", help="default: .instep_cache")


def _what(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    several = "names, codes or beginnings of codes, separated by commas"
    add("--select", action="append", default=[], metavar="RULES", help=f"only these: {several}")
    add("--ignore", action="append", default=[], metavar="RULES", help="all but these")
    add("--exclude", action="append", default=[], metavar="GLOB", help="as in a .gitignore")
    add("--severity", metavar="LEVEL", help="what fails the run: info, warning (default) or error")
    add("--config", metavar="FILE", help="a pyproject.toml to read settings from")
    add("--baseline", metavar="FILE", help="report only what is not in this file")
    add("--write-baseline", metavar="FILE", help="write what is found to this file, and succeed")
    add("--stdin-filename", metavar="PATH", help="what standard input is called")


def _fixes(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--fix", action="store_true", help="mend files in place; every fix is proved first")
    add("--diff", action="store_true", help="show what --fix would change, and change nothing")
    add("--unsafe-fixes", action="store_true", help="also fixes that change a deliberate choice")


def _output(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--output-format", choices=_FORMATS, default="text", help="default: text")
    add("--output-file", metavar="FILE", help="write the report there")
    add("--statistics", action="store_true", help="count findings by rule")
    add("-v", "--verbose", action="store_true", help="say which loops were not judged, and why")
    add("-q", "--quiet", action="store_true", help="no summary")
    add("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")


def _nearest(message: str) -> str:
    _, found, rest = message.partition("unrecognized arguments: ")
    word = rest.split()[0].partition("=")[0] if found and rest.split() else ""
    if not word.startswith("--"):
        return ""
    import difflib  # noqa: PLC0415  # only for those who mistype

    near = difflib.get_close_matches(word, _known(build()), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def _known(parser: argparse.ArgumentParser) -> list[str]:
    names = []
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to ask
        names += [name for name in action.option_strings if name.startswith("--")]
        if isinstance(action.choices, dict):
            names += [name for inner in action.choices.values() for name in _known(inner)]
    return names
