"""The guided tour: `python -m examples.tour` shows what instep does, computed while you watch."""
