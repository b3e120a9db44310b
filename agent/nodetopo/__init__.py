"""nodetopo: read, label, place and verify the topology of one GPU node."""

__version__ = "0.1.0"
