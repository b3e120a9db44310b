"""Readers: everything that looks at the node."""
