"""Tests of nodetopo.components.rdma."""
