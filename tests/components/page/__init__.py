"""Tests of agent.components.page."""
