"""Fixtures around the fake NVML library; their names begin with ``nvml_``."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodetopo.probes.nvml import event_pipe
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from tests.budget import cases
from tests.conftest import NODES
from tests.fake_nvml.build import library
from tests.fake_nvml.fake import FakeNvml
from tests.probes.nvml.nvml_pair import ANSWERS

Supervise = Callable[..., NvmlSupervisor]
PATIENCE_S = 60.0

DAILY_SHAPES = (
    "h100x8-nvswitch-2numa-mig",
    "b200x8-nvswitch-2numa-8cx7",
    "a100x8-nvswitch-2numa-sfvf",
    "gb200x4-nvl72-34numa-4cx7",
    "l4x1-1numa",
)
"""Machines that differ most: MIG, HCAs of the NVLink fabric, virtual functions, an NVLink domain
over several nodes, and the least."""

SHAPES = sorted(NODES.iterdir(), key=lambda path: (path.name not in DAILY_SHAPES, path.name))
SHAPES = SHAPES[: cases(len(DAILY_SHAPES), len(SHAPES))]
"""The machines below `tests/nodes` for tests that replay each of them: a few by day."""


@pytest.fixture(scope="session")
def nvml_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this run keeps compiled libraries."""
    return tmp_path_factory.mktemp("nvml")


@pytest.fixture(scope="session")
def nvml_library(nvml_cache: Path) -> Path:
    """The directory of the compiled fake library."""
    return library(nvml_cache)


@pytest.fixture
def nvml_fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """The pair of GPUs in :mod:`tests.probes.nvml.nvml_pair`, which every child sees."""
    fake = FakeNvml(tmp_path / "nvml", ANSWERS)
    monkeypatch.setenv("NODETOPO_FAKE_NVML", str(fake.directory))
    return fake


@pytest.fixture
def nvml_supervise(nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervise]:
    """Make supervisors on the fake library; they are closed when the test ends.

    A busy machine may take many seconds to start a child, or to end a thread.
    """
    monkeypatch.setattr(event_pipe, "_CLOSE_S", PATIENCE_S)
    made: list[NvmlSupervisor] = []

    def supervise(directory: Path = nvml_library, **settings: object) -> NvmlSupervisor:
        settings = {"timeout_s": PATIENCE_S, **settings}
        made.append(NvmlSupervisor(directory, **settings))  # type: ignore[arg-type] # by name
        return made[-1]

    yield supervise
    for supervisor in made:
        supervisor.close()
