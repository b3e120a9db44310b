"""Prometheus metrics and readiness over HTTP."""
