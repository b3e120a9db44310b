"""A node as a drawing: what contains what, the ways between devices, and a picture as SVG."""
