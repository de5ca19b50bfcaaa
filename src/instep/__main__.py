"""`python -m instep` is the command line."""

import sys

from instep.cli import main

sys.exit(main())
