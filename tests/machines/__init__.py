"""The bundled machines, and how they come to be."""
