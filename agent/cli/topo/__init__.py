"""The `topo` command: matrix, tree, path and drawing of a node."""
