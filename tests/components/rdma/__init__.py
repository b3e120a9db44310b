"""Tests of agent.components.rdma."""
