"""Advice derived from a snapshot: what others would answer or should set."""
