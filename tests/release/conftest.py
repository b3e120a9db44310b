"""One release for all tests of it: preparing it takes seconds."""

from pathlib import Path

import pytest

from tests.release.copied import released


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tree that is prepared; tests only read it."""
    return released(tmp_path_factory.mktemp("release") / "tree")
