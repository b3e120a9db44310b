"""The status page: the node, its GPUs, who has them, what is wrong, and what fits now."""
