"""What tests of every part share: machines as directories, the fake library."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from nodetopo.tools.capture.archive import unpack
from tests.fake_nvml import build
from tests.probes.sysfs.hca_machine import Errors, HcaMachine

NODES = Path(__file__).parent / "nodes"

# How long an example takes says more about the machine, and what else runs on it, than about us.
settings.register_profile(
    "unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Let children see Ctrl-C: a shell starts background jobs with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return the directory of real captures; they are not ours to publish, so not in here."""
    directory = os.environ.get("NODETOPO_CORPUS")
    if directory is None:
        pytest.skip("NODETOPO_CORPUS does not name the directory of captures")
    return Path(directory)


@pytest.fixture(scope="session")
def field(corpus: Path) -> Path:
    """Return the directory of others' files beside the captures; skip where it is not there."""
    found = corpus.parent / "field"
    if not found.is_dir():
        pytest.skip(f"{found} is not there")
    return found


@pytest.fixture(params=sorted(path.name for path in NODES.iterdir() if path.is_dir()))
def node_dir(request: pytest.FixtureRequest) -> Path:
    """Return the directory of each machine under `tests/nodes` in turn."""
    return NODES / str(request.param)


@pytest.fixture(scope="session")
def fake_nvml_library(
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Return the directory of our `libnvidia-ml.so.1`, compiled once for its sources."""
    kept = getattr(pytestconfig, "cache", None)
    return build.library(kept.mkdir("fake-nvml") if kept else tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a shape to its unpacked host root; treat the tree as read-only."""
    roots: dict[str, Path] = {}

    def host(shape: str) -> Path:
        if shape not in roots:
            root = tmp_path_factory.mktemp(shape)
            unpack((NODES / shape / "sysfs.txt").read_text("utf-8"), root)
            roots[shape] = root
        return roots[shape]

    return host


@pytest.fixture
def host_tree(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that unpacks an archive's text into this test's own host root."""

    def host(archive: str) -> Path:
        unpack(archive, tmp_path / "host")
        return tmp_path / "host"

    return host


@pytest.fixture
def hca_machine(host_tree: Callable[[str], Path]) -> Callable[[str], HcaMachine]:
    """Return a function from a shape to its `/sys`, which the test may change."""

    def machine(shape: str) -> HcaMachine:
        return HcaMachine(host_tree((NODES / shape / "sysfs.txt").read_text("utf-8")) / "sys")

    return machine


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> Errors:
    """Return what makes files fail from now on; none does until the test says which."""
    return Errors(monkeypatch)
