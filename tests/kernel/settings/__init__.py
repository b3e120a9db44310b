"""Tests of the settings: ours and those of NVIDIA's device plugin."""
