"""Distances, links and domains derived from a snapshot."""
