"""Tests of agent.components.audit."""
