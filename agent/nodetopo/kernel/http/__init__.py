"""Metrics, probes and pages over HTTP."""
