"""`instep explain`: the page of a rule or an error, and what may be behind a symptom."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from instep import symptoms
from instep.check.options import BESIDE
from instep.errors import CheckError
from instep.explain import page, title, topics
from instep.rules.registry import names, rulebook

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """Show a page, or the list of them."""
    if options.symptom is not None:
        sys.stdout.write(_symptom(options.symptom))
    elif options.topic is None:
        sys.stdout.write(_index())
    else:
        sys.stdout.write(_page(options.topic))
    return 0


def rule_page(code: str) -> str:
    """Return the page of a rule: its text, then the mistake and the same done right."""
    rule = rulebook()[code]
    head, _, body = (rule.__doc__ or "").strip().partition("\n")
    return (
        f"# {head.lstrip('# ')}\n\n{body.strip()}\n\n"
        f"## Wrong\n\n```python\n{rule.BAD.strip()}\n```\n\n"
        f"## Right\n\n```python\n{rule.GOOD.strip()}\n```\n"
    )


def _page(topic: str) -> str:
    word = topic.strip().lower()
    word = {code.lower(): name for code, name in BESIDE.items()}.get(word, word)
    if (text := page(word)) is not None:
        return text
    for code, name in names().items():
        if word in {code.lower(), name}:
            return rule_page(code)
    part = _like(word)
    if part:
        return part
    import difflib  # noqa: PLC0415  # only for those who mistype

    known = [*topics(), *names().values(), *(code.lower() for code in names())]
    near = difflib.get_close_matches(word, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise CheckError(
        f"there is no page {topic!r}.{hint}",
        why="a page has the name or the code of a rule, or the name that an error points to.",
        fix="`instep explain` lists the pages, `instep rules` the rules.",
        more="checking",
    )


def _like(word: str) -> str:
    """Return the pages and rules of which a word is a part: `ins2`, `zero`."""
    pages = {name: title(name) for name in topics() if word and word in name}
    rules = {
        f"{code} {name}": rulebook()[code].SUMMARY
        for code, name in names().items()
        if word and (code.lower().startswith(word) or word in name)
    }
    found = {**pages, **rules}
    width = max(map(len, found), default=0)
    return "".join(f"{name:<{width}}  {said}\n" for name, said in found.items())


def _index() -> str:
    width = max(map(len, [*topics(), *names().values()]))
    pages = [f"{name:<{width}}  {title(name)}" for name in topics()]
    rules = [f"{rule.NAME:<{width}}  {rule.SUMMARY}" for rule in rulebook().values()]
    return "\n".join([*pages, "", *rules]) + "\n"


def _symptom(said: str) -> str:
    found = symptoms.matching(said)
    if not found:
        sys.stdout.writelines(f"{symptom.name}\n" for symptom in symptoms.SYMPTOMS)
        sys.stdout.flush()
        raise CheckError(
            f"no symptom is known that reads like {said!r}.",
            why="the list above is all that is known.",
            fix="say it in other words, or run `instep check` on the loop itself.",
            more="checking",
        )
    rules = {name: code for code, name in names().items()}
    return "\n".join(_shown(symptom, rules) for symptom in found)


def _shown(symptom: symptoms.Symptom, rules: dict[str, str]) -> str:
    lines = [symptom.name]
    for cause in symptom.causes:
        label = f"{rules[cause.see]} {cause.see}" if cause.see in rules else cause.see
        lines += [f"  {label}", f"      {cause.why}"]
    return "\n".join(lines) + "\n"
