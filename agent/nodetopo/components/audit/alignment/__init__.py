"""Whether running pods got NUMA-aligned CPUs, memory and devices."""
