"""The `topo` command: matrix, tree, path, complexes and drawing of a node."""
