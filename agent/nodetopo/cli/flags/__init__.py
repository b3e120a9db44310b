"""The flags of each command, without the imports for running it."""
