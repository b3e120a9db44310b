"""Rules about all nodes of a cluster."""
