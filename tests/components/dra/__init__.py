"""Tests of agent.components.dra."""
