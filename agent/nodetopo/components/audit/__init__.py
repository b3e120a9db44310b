"""Checks of the node, alignment of its pods, explanations of rejected pods."""
