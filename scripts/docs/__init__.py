"""Generators of the reference pages; no part of the wheel."""
