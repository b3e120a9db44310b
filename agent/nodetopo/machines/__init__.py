"""Snapshots of reference machines that ship with the package."""
