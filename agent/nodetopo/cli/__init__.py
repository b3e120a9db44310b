"""The command line: one command per file, the same functions as the daemon."""
