"""``nodetopo nccl``: variables and the topology for NCCL, and logs of bandwidth tests."""
