"""What each NUMA node has left, and what each pod got."""
