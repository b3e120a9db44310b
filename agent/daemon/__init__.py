"""The daemon: loops that scan, serve, publish and audit."""
