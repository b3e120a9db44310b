"""Tests of nodetopo.components.gpus."""
