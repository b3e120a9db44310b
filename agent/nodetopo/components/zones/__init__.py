"""Each NUMA node's free resources, and each pod's NUMA nodes."""
