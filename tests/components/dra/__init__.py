"""Tests of nodetopo.components.dra."""
