"""Tests of nodetopo.components.labels."""
