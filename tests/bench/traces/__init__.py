"""Replay and synthesis of jobs on one node, placed by nodetopo's policies and by others'."""
