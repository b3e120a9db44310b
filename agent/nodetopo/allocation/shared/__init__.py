"""Allocation of MIG devices and time-sliced replicas."""
