"""Tests of agent/nodetopo/tools/bandwidth."""
