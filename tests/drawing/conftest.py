"""Drawings are asked for on the command line as well."""

from tests.cli.conftest import cli

__all__ = ["cli"]
