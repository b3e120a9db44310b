"""PCI, NUMA, CPU, RDMA and kernel facts from sysfs and procfs."""
