"""NVIDIA's own programs, built from the Go module proxy: the measure of what ours equal."""

from tests.lab.nvidia.build import programs

__all__ = ["programs"]
