"""The subjects of the daemon, one folder each; :mod:`agent.kernel.components` has the table."""
