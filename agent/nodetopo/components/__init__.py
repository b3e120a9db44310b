"""The subjects of the daemon, one folder each; :mod:`nodetopo.kernel.components` has the table."""
