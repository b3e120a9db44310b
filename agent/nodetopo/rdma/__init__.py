"""Which HCAs a node offers to containers, and which of them belong to which GPUs."""
