"""Pods from manifests, API objects and cgroups."""
