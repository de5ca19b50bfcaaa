"""`python -m instep` is the command line."""

from instep.cli import entry

entry()
