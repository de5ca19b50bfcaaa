"""The commands, one module each; the command line imports the one that is asked for."""
