"""Bounded readers of YAML, JSON, TOML and untyped fields."""
