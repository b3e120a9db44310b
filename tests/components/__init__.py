"""Tests of agent.components."""
