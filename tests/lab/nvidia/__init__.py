"""NVIDIA's own device plugin, built from the Go module proxy: the measure of what ours equals."""

from tests.lab.nvidia.build import programs

__all__ = ["programs"]
