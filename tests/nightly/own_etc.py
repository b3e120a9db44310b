"""A program that finds a directory of the test's in the place of ``/etc``, and nobody else does."""

from pathlib import Path
from shlex import quote

from tests.lab.namespace import unshare_flags


def with_etc(directory: Path, name: str) -> tuple[str, ...]:
    """Return the prefix that runs the program *name* with *directory* as its ``/etc``."""
    flags = unshare_flags()
    assert flags is not None, "the lab needs root or user namespaces"
    script = f'mount --bind {quote(str(directory))} /etc && exec "$@"'
    return ("unshare", *flags, "sh", "-c", script, name)
