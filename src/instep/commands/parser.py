"""What can be typed. Nothing but argparse is imported here, so that help comes at once; `pathlib`
would take longer than all the rest.
"""

from __future__ import annotations

import argparse
import os
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Any, NoReturn

from instep import __version__
from instep.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORMATS = ("text", "json", "sarif", "github")  # a test holds it to those of the reports


class _Layout(argparse.HelpFormatter):
    """Asks how wide the terminal is when there is something to lay out.

    argparse makes one of these for nearly every option, and would ask each time.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=80)

    def format_help(self) -> str:
        """Return the text, as wide as argparse by itself would make it."""
        asked = argparse.HelpFormatter(self._prog)
        self._width, self._max_help_position = asked._width, asked._max_help_position  # noqa: SLF001
        return super().format_help()


class Parser(argparse.ArgumentParser):
    """A parser whose complaints have the form of all errors."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Layout, **options)

    def error(self, message: str) -> NoReturn:
        """Refuse what was typed."""
        asked = self.prog if " " in self.prog else f"{self.prog} COMMAND"
        raise CheckError(
            f"{message.rstrip('.')}.{_nearest_in(message)}",
            why="what is not understood is not guessed.",
            fix=f"{asked} --help lists what can be said.",
            more="checking",
        )


class WatchParser(Parser):
    """A parser of options that end where somebody else's program begins."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse what comes before the program; what comes after is the program's own."""
        given = list(args or ())
        end = self._program(given)
        # `-m NAME` is ours, and ends what is.
        read, unknown = super().parse_known_args(given[:end], namespace)
        rest = given[end:]
        if rest[:1] == ["--"] and read.module is None:
            del rest[0]
        if unknown:
            self._misplaced(unknown[0], rest)
        read.script = None if read.module is not None or not rest else rest.pop(0)
        read.arguments = rest
        return read, unknown

    def _misplaced(self, word: str, rest: list[str]) -> NoReturn:
        """Refuse an option that may be the program's own."""
        shown = word.partition("=")[0]
        # What its value is, nobody knows: the program is named only where that is clear.
        name = rest[0] if rest and rest[0].endswith(".py") else "train.py"
        raise CheckError(
            f"unrecognized arguments: {shown}.{_nearest(word, cutoff=0.8)}",
            why="options before the program are those of instep watch, and this is none of them.",
            fix=f"options of the program come after it: instep watch {name} {shown} ...; "
            f"{self.prog} --help lists those of instep.",
            more="watching",
        )

    def _program(self, given: list[str]) -> int:
        """Return where the program begins: after -m NAME, or at a word that is no option."""
        takes = {
            name for action in self._actions if action.nargs != 0 for name in action.option_strings
        }
        at = 0
        while at < len(given):
            word = given[at]
            if word == "--" or not word.startswith("-") or word == "-":
                return at
            if word.startswith("-m"):
                return min(at + (2 if word == "-m" else 1), len(given))
            at += 2 if word in takes else 1
        return len(given)


def _version() -> str:
    """Return `instep 0.1.0`, and whether the executor of this installation is compiled."""
    machine = os.path.join(os.path.dirname(__file__), "..", "check", "execute", "machine")  # noqa: PTH118, PTH120
    is_compiled = any(os.path.isfile(machine + suffix) for suffix in EXTENSION_SUFFIXES)  # noqa: PTH113
    return f"instep {__version__}{' (compiled)' if is_compiled else ''}"


def build() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="instep", description="Keeps PyTorch training loops in step.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(
        # By name: argparse would lay out the usage to find it, and load `shutil` for that.
        prog=parser.prog,
        dest="command",
        required=True,
        metavar="COMMAND",
    )
    _check(commands)
    _watch(commands)
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


def _watch(commands: argparse._SubParsersAction[Parser]) -> None:
    commands._parser_class = WatchParser  # noqa: SLF001  # argparse has one class for all commands
    watch = commands.add_parser(
        "watch",
        help="run a training job, and say when an update of it is wrong",
        description="Run a program as Python would, watch its updates, and say what is wrong.",
        usage="instep watch [OPTIONS] (SCRIPT | -m MODULE) [ARGUMENTS]",
        epilog="Options come before the program; what follows it is its own. Under torchrun: "
        "torchrun --nproc-per-node N -m instep watch train.py. Exit status: that of the program; "
        "1 with --strict if an error or a warning was found; 2 could not run. "
        "`instep explain watching` tells more.",
        allow_abbrev=False,
    )
    commands._parser_class = Parser  # noqa: SLF001
    add = watch.add_argument
    add("-m", dest="module", metavar="MODULE", help="run a module, as python -m does")
    several = "names, codes or beginnings of codes, separated by commas"
    add("--select", action="append", default=[], metavar="RULES", help=f"only these: {several}")
    add("--ignore", action="append", default=[], metavar="RULES", help="all but these")
    add("--strict", action="store_true", help="fail if an error or a warning was found")
    add("--output-format", choices=_FORMATS, default="text", help="default: text")
    add("--output-file", metavar="FILE", help="write the report there, also while the job runs")
    add("--report", metavar="FILE", help="write a page (.html), or findings (.json, .sarif, .txt)")
    add("--chrome-trace", metavar="FILE", help="write a timeline for Perfetto or chrome://tracing")
    add("-q", "--quiet", action="store_true", help="only the findings, at the end")


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


def _nearest_in(message: str) -> str:
    _, found, rest = message.partition("unrecognized arguments: ")
    return _nearest(rest.split()[0]) if found and rest.split() else ""


def _nearest(word: str, *, cutoff: float = 0.6) -> str:
    """Say which option somebody may have meant.

    >>> _nearest("--strickt"), _nearest("--epochs", cutoff=0.8)
    (' Did you mean --strict?', '')
    """
    word = word.partition("=")[0]
    if not word.startswith("--"):
        return ""
    known = _known(build())
    if word in known:
        return f" It is an option of `instep {known[word]}`."
    import difflib  # noqa: PLC0415  # only for those who mistype

    near = difflib.get_close_matches(word, known, n=1, cutoff=cutoff)
    return f" Did you mean {near[0]}?" if near else ""


def taken_for_its_own(arguments: Sequence[str]) -> list[str]:
    """Return those of a program's arguments that `instep watch` would know before the program.

    >>> taken_for_its_own(["--epochs", "3", "--report=page.html"])
    ['--report']
    """
    commands = next(a for a in build()._actions if isinstance(a.choices, dict))  # noqa: SLF001
    known = _known(commands.choices["watch"])  # type: ignore[index]
    words = dict.fromkeys(word.partition("=")[0] for word in arguments)
    return [word for word in words if word in known]


def _known(parser: argparse.ArgumentParser, command: str = "") -> dict[str, str]:
    """Return all options, with the first command that has them."""
    found: dict[str, str] = {}
    for action in parser._actions:  # noqa: SLF001  # argparse has no other way to ask
        names = [name for name in action.option_strings if name.startswith("--")]
        found = dict.fromkeys(names, command) | found
        if isinstance(action.choices, dict):
            for name, inner in action.choices.items():
                found = _known(inner, name) | found
    return found
