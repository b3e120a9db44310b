"""The flags of each command, without what the command needs to run."""
