"""Tests of nodetopo.components.zones."""
