"""The prose linter: Vale with the rules of styles/Nodetopo, on everything that a person reads."""
