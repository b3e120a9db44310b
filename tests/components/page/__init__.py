"""Tests of nodetopo.components.page."""
