"""Settings: `[tool.instep]` of the nearest pyproject.toml, checked word by word."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.check.discovery import Ignore
from instep.errors import CheckError
from instep.rules.finding import Severity
from instep.trace.plain import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KEYS = ("select", "ignore", "exclude", "severity", "per-file-ignores", "baseline")


@dataclass(frozen=True)
class Config:
    """What to check and what to report. Rules are held by their codes."""

    root: Path
    """The folder that globs and paths are relative to."""
    source: Path | None = None
    """The file it was read from; None: there is none, these are the defaults."""
    select: frozenset[str] | None = None
    """None: every rule."""
    ignore: frozenset[str] = frozenset()
    exclude: tuple[str, ...] = ()
    severity: Severity = Severity.WARNING
    per_file_ignores: tuple[tuple[str, frozenset[str]], ...] = ()
    baseline: Path | None = None

    def excluded(self) -> Ignore:
        """Return the `exclude` globs in the form that discovery takes."""
        return Ignore.globs(self.root, self.exclude)

    def codes_for(self, path: str | Path, rules: Mapping[str, str]) -> frozenset[str]:
        """Return the codes of the rules that a file is judged by."""
        codes = frozenset(rules) if self.select is None else self.select
        ignored = set(self.ignore)
        absolute = str(_absolute(path))
        for glob, ignores in self.per_file_ignores:
            if Ignore.globs(self.root, [glob]).covers(absolute):
                ignored |= ignores
        return codes - ignored


def find_config(start: str | Path, rules: Mapping[str, str]) -> Config:
    """Read the nearest pyproject.toml that has a `[tool.instep]`, upwards from a file or folder.

    `rules` maps codes to names: {"INS101": "missing-zero-grad"}. The search ends at the root of
    the repository.
    """
    here = _absolute(start)
    for folder in (here, *here.parents):
        file = folder / "pyproject.toml"
        if _speaks_of_us(file) and (config := _from_file(file, rules)) is not None:
            return config
        if (folder / ".git").exists():
            break
    return Config(root=here if here.is_dir() else here.parent)


def _speaks_of_us(file: Path) -> bool:
    try:
        return file.is_file() and b"instep" in file.read_bytes()
    except OSError:
        return True  # who reads it next will say what is wrong


def load_config(file: str | Path, rules: Mapping[str, str]) -> Config:
    """Read the settings of one file; it has to exist."""
    path = _absolute(file)
    if not path.is_file():
        raise _error(f"there is no {str(file)!r}.", "settings are read from it.", "name a file.")
    return _from_file(path, rules) or Config(root=path.parent, source=path)


def resolve(words: Iterable[str], rules: Mapping[str, str], *, where: str) -> frozenset[str]:
    """Turn names, codes and beginnings of codes into codes; `where` says who named them.

    >>> rules = {"INS101": "missing-zero-grad", "INS201": "unscaled-accumulation"}
    >>> sorted(resolve(["missing-zero-grad", "INS2"], rules, where="--select"))
    ['INS101', 'INS201']
    """
    by_name = {name: code for code, name in rules.items()}
    found: set[str] = set()
    for word in words:
        upper = word.upper()
        if word == "all":
            found.update(rules)
        elif word.lower() in by_name:
            found.add(by_name[word.lower()])
        elif upper.startswith("INS") and any(code.startswith(upper) for code in rules):
            found.update(code for code in rules if code.startswith(upper))
        else:
            guess = did_you_mean(word, [*by_name, *rules])
            raise _error(
                f"{where}: there is no rule {word!r}.{guess}",
                "a rule that does not exist would be skipped in silence.",
                "use a name, a code or the beginning of one; `instep rules` lists them.",
            )
    return frozenset(found)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest known word, or nothing.

    >>> did_you_mean("selct", ["select", "ignore"])
    " Did you mean 'select'?"
    """
    import difflib  # noqa: PLC0415  # only for those who mistype

    lower = {other.lower(): other for other in known}
    near = difflib.get_close_matches(word.lower(), lower, n=1)
    return f" Did you mean {lower[near[0]]!r}?" if near else ""


def _absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100  # Path.absolute keeps "..", which has parents


def _from_file(file: Path, rules: Mapping[str, str]) -> Config | None:
    import tomllib  # noqa: PLC0415  # most projects have no settings

    try:
        text = file.read_text(encoding="utf-8-sig")
        table = tomllib.loads(text).get("tool", {}).get("instep")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, AttributeError) as error:
        raise _error(
            f"{file}: it cannot be read ({error}).",
            "the settings of instep may be in it.",
            "mend the file; any TOML checker shows the place.",
        ) from error
    return None if table is None else _checked(file, table, rules)


def _checked(file: Path, table: Any, rules: Mapping[str, str]) -> Config:
    where = f"{file}: [tool.instep]"
    if not isinstance(table, dict):
        raise _wrong_type(where, "a table", table)
    for key in table:
        if key not in _KEYS:
            raise _error(
                f"{where}: there is no setting {key!r}.{did_you_mean(key, _KEYS)}",
                "a setting that does not exist would be skipped in silence.",
                f"use one of {', '.join(_KEYS)}.",
            )
    select = table.get("select")
    baseline = table.get("baseline")
    return Config(
        root=file.parent,
        source=file,
        select=None if select is None else _codes(f"{where} select", select, rules),
        ignore=_codes(f"{where} ignore", table.get("ignore", []), rules),
        exclude=_strings(f"{where} exclude", table.get("exclude", [])),
        severity=severity(table.get("severity", "warning"), where=f"{where} severity"),
        per_file_ignores=_per_file(f"{where} per-file-ignores", table, rules),
        baseline=None if baseline is None else file.parent / _string(f"{where} baseline", baseline),
    )


def severity(word: Any, *, where: str) -> Severity:
    """Read a severity.

    >>> severity("error", where="--severity")
    <Severity.ERROR: 3>
    """
    words = {level.word: level for level in Severity}
    level = words.get(_string(where, word).lower())
    if level is None:
        raise _error(
            f"{where}: {word!r} is no severity.{did_you_mean(word, words)}",
            "findings below the severity do not fail the run.",
            f"use one of {', '.join(words)}.",
        )
    return level


def _per_file(
    where: str, table: dict[str, Any], rules: Mapping[str, str]
) -> tuple[tuple[str, frozenset[str]], ...]:
    entries = table.get("per-file-ignores", {})
    if not isinstance(entries, dict):
        raise _wrong_type(where, 'a table of globs: {"tests/*" = ["zero-fill"]}', entries)
    return tuple(
        (glob, _codes(f"{where} {glob!r}", words, rules)) for glob, words in entries.items()
    )


def _codes(where: str, value: Any, rules: Mapping[str, str]) -> frozenset[str]:
    return resolve(_strings(where, value), rules, where=where)


def _strings(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong_type(where, "a list of strings", value)
    return tuple(value)


def _string(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong_type(where, "a string", value)
    return value


def _wrong_type(where: str, wanted: str, value: Any) -> CheckError:
    return _error(
        f"{where}: expected {wanted}, got {value!r}.",
        "a setting of another kind cannot be followed.",
        f"write {wanted}.",
    )


def _error(what: str, why: str, fix: str) -> CheckError:
    return CheckError(what, why=why, fix=fix, more="configuration")
