"""Explanations of the words that a node, its kubelet and nodetopo report."""
