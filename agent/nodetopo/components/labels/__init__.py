"""Labels of the node, for every output."""
