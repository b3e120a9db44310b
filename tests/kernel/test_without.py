"""A component is dropped by deleting its folder and its line: the rest starts and works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nodetopo

PACKAGE = Path(nodetopo.__file__).parent
DROPPABLE = ("dra", "zones", "rdma", "page", "audit")
TIMEOUT_S = 240

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


def without(name: str, directory: Path) -> dict[str, str]:
    """Copy the package without the component *name*; return the environment that imports it."""
    copy = directory / "nodetopo"
    left_out = {"": ("kernel", "components"), "kernel": ("components.py",), "components": (name,)}
    for folder, names in left_out.items():
        (copy / folder).mkdir()
        for entry in (PACKAGE / folder).iterdir():
            if entry.name not in (*names, "__pycache__"):
                (copy / folder / entry.name).symlink_to(entry)
    lines = (PACKAGE / "kernel" / "components.py").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.strip().startswith(f'"{name}": ')]
    assert len(kept) == len(lines) - 1
    (copy / "kernel" / "components.py").write_text("".join(kept))
    own = {key: value for key, value in os.environ.items() if not key.startswith("NODETOPO_")}
    return {**own, "PYTHONPATH": str(directory)}


def shown(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
        check=False,
    )


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
    assert set(rest["unusable"]) == ALONE.get(name, set())
    assert all(missing == f"nodetopo.components.{name}" for missing in rest["unusable"].values())


@pytest.mark.parametrize("name", DROPPABLE)
def test_the_daemon_starts_without_a_component(name: str, tmp_path: Path) -> None:
    daemon = ("run", "--once", "--machine=dgx-h100", "--metrics-address=127.0.0.1:0")
    done = shown(without(name, tmp_path), "-m", "nodetopo", *daemon, "--health-file=none")
    assert done.returncode == 0, done.stderr
    for word in ("nvidia.com/gpu: 8 devices registered", "gpu.topology/interconnect", "/metrics"):
        assert word in done.stdout, word


def test_a_command_without_its_component_says_so(tmp_path: Path) -> None:
    environment = without("audit", tmp_path)
    for command in ("health", "audit"):
        done = shown(environment, "-m", "nodetopo", command, "--machine=dgx-h100")
        assert done.returncode == 2, done.stderr
        message = f"`nodetopo {command}` needs the component audit, which is not installed"
        assert done.stderr == f"error: {message} — install nodetopo with it\n"
    listed = shown(environment, "-m", "nodetopo", "explain", "-o", "short")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout
    assert "KUB-001" not in listed.stdout
