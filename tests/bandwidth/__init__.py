"""Tests of agent/bandwidth."""
