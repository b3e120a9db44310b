"""What each NUMA node of this machine has, gave away and has left, for schedulers that ask."""
