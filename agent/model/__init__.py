"""Nouns: frozen records of what a node has; standard library only, no I/O."""
