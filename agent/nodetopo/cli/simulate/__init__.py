"""The `simulate` command: the bundled machines and clusters."""
