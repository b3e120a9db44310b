"""Snapshots from `nvidia-smi topo -m` text and NCCL topology XML."""
