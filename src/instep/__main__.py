"""`python -m instep` is the command line."""

import sys

# Python has put the current folder first. It may be somebody else's, and a file in it that is named
# like a module of the standard library would run in its place. The command `instep` has a folder of
# the interpreter's there, too; `instep watch` puts that of the program in its place.
if not sys.flags.safe_path:
    sys.path[0] = sys.exec_prefix

from instep.cli import entry  # not from the current folder

entry()
