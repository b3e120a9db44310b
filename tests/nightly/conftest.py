"""The nightly proof as fixtures; it runs only where its marker is asked for by name."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.lab.build import binaries
from tests.lab.go_program import GoPrograms
from tests.lab.namespace import unshare_flags
from tests.nightly import rdma_shared, zones_scheduler
from tests.nightly.build import PROGRAMS
from tests.nightly.cluster import NightlyCluster, running

_MARKER = "nightly"
_PROGRAMS: Mapping[str, tuple[GoPrograms, ...]] = MappingProxyType(
    {
        "test_gangs": (PROGRAMS["kueue"], PROGRAMS["kai"]),
        "test_rdma_shared": (rdma_shared.PROGRAMS,),
        "test_nfd": (PROGRAMS["nfd"],),
        "test_zones": (zones_scheduler.PROGRAMS,),
    }
)
"""By the file of the tests: what is compiled for them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the nightly tests out unless ``-m`` names them: ``-m "not lab"`` does not."""
    if _MARKER in config.option.markexpr:
        return
    nightly = [item for item in items if item.get_closest_marker(_MARKER)]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [item for item in items if item not in nightly]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs before the first test, whose time limit a cold build would exceed."""
    wanted = {item.path.stem for item in session.items if item.get_closest_marker(_MARKER)}
    if wanted and not session.config.option.collectonly and unshare_flags() is not None:
        capture: Any = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            binaries()
            for name in sorted(wanted):
                for programs in _PROGRAMS[name]:
                    programs.folder()


@pytest.fixture(scope="session")
def nightly() -> Iterator[NightlyCluster]:
    """Return the labelled cluster with both schedulers running."""
    with running() as cluster:
        yield cluster
