"""Judges the configuration of the programs that nodetopo replaces."""
