"""Tests of agent.kernel."""
