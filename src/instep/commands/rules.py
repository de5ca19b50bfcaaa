"""`instep rules`: the rulebook, as a table or for programs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from instep.rules.registry import rulebook, watched

if TYPE_CHECKING:
    import argparse


def run(options: argparse.Namespace) -> int:
    """List the rules."""
    book = rulebook()
    if options.output_format == "json":
        rows = [
            {
                "code": code,
                "name": rule.NAME,
                "severity": rule.SEVERITY.word,
                "summary": rule.SUMMARY,
                "is_fixable": hasattr(rule, "mend"),
                "seen_by": ["watch"] if code in watched() else ["check", "watch"],
            }
            for code, rule in book.items()
        ]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return 0
    width = max((len(rule.NAME) for rule in book.values()), default=0)
    for code, rule in book.items():
        fix = "fix" if hasattr(rule, "mend") else "   "
        seen = "watch" if code in watched() else "     "
        severity = f"{rule.SEVERITY.word:<7}"
        sys.stdout.write(
            f"{code} {rule.NAME:<{width}}  {severity}  {fix}  {seen}  {rule.SUMMARY}\n"
        )
    return 0
