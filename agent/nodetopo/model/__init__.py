"""Nouns: frozen records of what a node has; standard library only, no I/O."""

SCHEMA = "nodetopo/v1"
"""Names the JSON shape of a snapshot; here, so that ``nodetopo version`` loads no records."""
