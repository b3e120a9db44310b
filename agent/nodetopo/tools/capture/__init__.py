"""Save a node as files that replay it elsewhere, with private names replaced."""
