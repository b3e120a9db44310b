"""Tests of agent.components.gpus."""
