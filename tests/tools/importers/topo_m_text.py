"""One small matrix as `nvidia-smi topo -m` prints it, in parts."""

ROWS = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tPXB\t0-7\t0\t\tN/A
GPU1\tNV4\t X \tSYS\t8-15\t1\t\tN/A
NIC0\tPXB\tSYS\t X \t\t\t\t
"""
PCI_LEGEND = "\nLegend:\n\n  X    = Self\n  PIX  = Connection through a bridge\n"
NIC_LEGEND = "\nNIC Legend:\n\n  NIC0: mlx5_bond_0\n"
TEXT = f"{ROWS}{PCI_LEGEND}  NV#  = Connection through # NVLinks\n{NIC_LEGEND}"
BARE = """\
      GPU0  GPU1  NIC0
GPU0  X     NV4   PXB
GPU1  NV4   X     SYS
NIC0  PXB   SYS   X
"""
