"""A component is dropped by deleting its folder and its line: the rest starts and works."""

import json
from pathlib import Path

import pytest

from nodetopo.kernel.components import COMPONENTS
from tests.kernel.without import shown, without

DROPPABLE = [name for name in COMPONENTS if name not in ("gpus", "labels")]

ALONE = {
    "audit": {"nodetopo.cli.alignment", "nodetopo.cli.audit", "nodetopo.cli.health"},
    "rdma": {"nodetopo.cli.startup_pools"},
}
"""Modules of the command line that have no use without a component."""

LOOK = """
import json, pkgutil, sys
from importlib import import_module
import nodetopo
from nodetopo.kernel.components import COMPONENTS
from nodetopo.kernel.http.families import families
from nodetopo.kernel.settings.declare import options
from nodetopo.kernel.settings.resolve import Resolved

resolved = Resolved.of(flags={}, environment={})
unusable = {}
for module in pkgutil.walk_packages(nodetopo.__path__, "nodetopo."):
    if module.name.endswith("__main__") or module.name.startswith("nodetopo.components."):
        continue
    try:
        import_module(module.name)
    except ModuleNotFoundError as error:
        unusable[module.name] = error.name
for name in COMPONENTS:
    import_module(f"nodetopo.components.{name}.component")
json.dump(
    {
        "place": nodetopo.__file__,
        "components": list(COMPONENTS),
        "settings": list(resolved.origins),
        "families": len(families()),
        "unusable": unusable,
    },
    sys.stdout,
)
"""


@pytest.mark.parametrize("name", DROPPABLE)
def test_nothing_but_its_commands_imports_a_component(name: str, tmp_path: Path) -> None:
    done = shown(without(name, tmp_path), "-c", LOOK)
    assert done.returncode == 0, done.stderr
    rest = json.loads(done.stdout)
    assert Path(rest["place"]).parent == tmp_path / "nodetopo"
    assert name not in rest["components"]
    assert len(rest["components"]) == len(DROPPABLE) + 1  # GPUs and labels stay
    assert rest["families"]
    assert "resource_name" in rest["settings"]
    expected = (ALONE[other] for other in ALONE if other not in rest["components"])
    assert set(rest["unusable"]) == set().union(*expected)


@pytest.mark.parametrize("name", DROPPABLE)
def test_the_daemon_starts_without_a_component(name: str, tmp_path: Path) -> None:
    daemon = ("run", "--once", "--machine=dgx-h100", "--metrics-address=127.0.0.1:0")
    done = shown(without(name, tmp_path), "-m", "nodetopo", *daemon, "--health-file=none")
    assert done.returncode == 0, done.stderr
    for word in ("nvidia.com/gpu: 8 devices registered", "gpu.topology/interconnect", "/metrics"):
        assert word in done.stdout, word
