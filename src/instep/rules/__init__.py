"""The rulebook: what can break a window, each rule a function over a trace."""

from instep.rules.finding import Edit, Finding, Fix, Related, Severity

__all__ = ["Edit", "Finding", "Fix", "Related", "Severity"]
