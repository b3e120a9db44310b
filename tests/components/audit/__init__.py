"""Tests of nodetopo.components.audit."""
