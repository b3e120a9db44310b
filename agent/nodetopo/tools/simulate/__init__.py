"""Replay and synthesis of requests against a snapshot."""
