"""Machines put together from published facts, for `tests/nodes/` and the bundled snapshots."""
