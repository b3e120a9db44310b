"""Commands and generators of the project itself."""
