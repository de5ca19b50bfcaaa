"""What is written for users outside the package; the pages of the rules are generated."""
