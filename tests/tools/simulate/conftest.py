"""The command line in process, as the tests of the other commands call it."""

from tests.cli.conftest import _no_settings_from_outside, cli

__all__ = ["_no_settings_from_outside", "cli"]
