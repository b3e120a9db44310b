"""NCCL's view of a node, and its settings."""
