"""What NCCL sees of a node, and what can be set for it."""
