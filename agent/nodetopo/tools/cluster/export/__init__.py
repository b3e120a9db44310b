"""Topology objects for other schedulers."""
