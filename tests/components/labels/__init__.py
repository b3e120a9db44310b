"""Tests of agent.components.labels."""
