"""Short complete scripts, each answering one question, and the guided tour."""
