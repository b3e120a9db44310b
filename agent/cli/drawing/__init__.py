"""The picture of a node, as SVG 1.1 that needs nothing from outside."""
