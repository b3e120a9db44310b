"""Drawings of a node as self-contained SVG 1.1."""
