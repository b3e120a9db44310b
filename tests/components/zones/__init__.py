"""Tests of agent.components.zones."""
