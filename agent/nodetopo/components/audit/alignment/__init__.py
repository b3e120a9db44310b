"""The NUMA alignment of running pods' CPUs, memory and devices."""
