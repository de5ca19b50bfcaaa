"""How fast `instep check` reads a project, beside other checkers on the same files."""
