"""Tests of nodetopo.components."""
