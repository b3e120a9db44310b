"""Helm, built from the module proxy, and the chart as it renders."""
