"""The CDI specification that ours writes, held against that of NVIDIA's device plugin v0.19.0."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from msgspec import Struct

from nodetopo.deviceplugin.cdi_hooks import ENABLE_COMPAT, KEEP_NODES
from tests.deviceplugin.driver_tree import know
from tests.lab.nvidia.cases import GPU, ONE, THREE, Case
from tests.lab.nvidia.desk import Desk

pytestmark = pytest.mark.lab

_THEIRS, _OURS = "k8s.device-plugin.nvidia.com/gpu", "device-plugin.nodetopo.io/gpu"
_KNOWN_BY_CACHE = "gb200"
"""The machine whose driver is in no usual directory: the loader's cache alone knows it."""

_USUAL, _UNUSUAL = "usr/lib64", "usr/local/nvidia/lib64"

_WRITE = {"nodetopo": {"cdi-spec": "write", "cdi-spec-dir": "/run/cdi"}}
_CASES = (
    Case(machine="whole", amounts={GPU: 8}),
    Case(machine="mig", amounts={GPU: 5, ONE: 7, THREE: 2}, mig="mixed"),
    Case(machine=_KNOWN_BY_CACHE, amounts={GPU: 4}),
)


class Specs(Struct, frozen=True, kw_only=True):
    """What both wrote for the same machine."""

    theirs: Mapping[str, Any]
    ours: Mapping[str, Any]


@pytest.fixture(scope="module", params=_CASES, ids=lambda case: case.machine)
def specs(request: pytest.FixtureRequest, desk: Callable[[str], Desk]) -> Specs:
    """Return both specifications for whole GPUs, for MIG devices, and for another directory."""
    case: Case = request.param
    at = desk(case.machine)
    if case.machine == _KNOWN_BY_CACHE:
        (at.host / _UNUSUAL).parent.mkdir(parents=True)
        (at.host / _USUAL).rename(at.host / _UNUSUAL)
        names = (path.name for path in (at.host / _UNUSUAL).iterdir())
        know(at.host, *(f"/{_UNUSUAL}/{name}" for name in names))
    handing = {"deviceListStrategy": "cdi-cri", "containerDriverRoot": "@HOST@"}
    hook = at.host / "usr" / "bin" / "nvidia-cdi-hook"
    hook.parent.mkdir(parents=True, exist_ok=True)
    hook.touch(mode=0o755)
    hook.write_text(f"\x7fELF{ENABLE_COMPAT}{KEEP_NODES}")
    config = Case(
        machine=case.machine, amounts={}, mig=case.mig, plugin=handing, more=_WRITE
    ).config
    for running in (at.with_nvidia, at.with_ours):
        with running(config, case.amounts):
            found = at.cdi_specs()
    return Specs(theirs=found[_THEIRS], ours=found[_OURS])


def test_both_name_the_same_devices_and_give_each_the_same_nodes(specs: Specs) -> None:
    ours = dict(_nodes_by_device(specs.ours))
    theirs = dict(_nodes_by_device(specs.theirs))
    assert {name: ours[name] for name in theirs} == theirs


def test_every_container_gets_the_same_nodes(specs: Specs) -> None:
    assert _nodes(specs.ours) == _nodes(specs.theirs)


def test_every_container_gets_the_same_files_of_the_driver(specs: Specs) -> None:
    assert _mounts(specs.ours) == _mounts(specs.theirs)


def test_every_container_is_prepared_by_the_same_hooks_in_the_same_order(specs: Specs) -> None:
    assert list(_hooks(specs.ours).items()) == list(_hooks(specs.theirs).items())


def _nodes_by_device(spec: Mapping[str, Any]) -> Iterator[tuple[str, set[str]]]:
    for device in spec["devices"]:
        yield device["name"], _nodes(device)


def _nodes(part: Mapping[str, Any]) -> set[str]:
    return {node["path"] for node in part["containerEdits"].get("deviceNodes", ())}


def _mounts(spec: Mapping[str, Any]) -> set[tuple[str, str]]:
    mounts = spec["containerEdits"].get("mounts", ())
    return {(mount["containerPath"], mount["hostPath"]) for mount in mounts}


def _hooks(spec: Mapping[str, Any]) -> Mapping[str, tuple[str, list[str]]]:
    """Return the stage and the further words of each hook, by its name."""
    found = {}
    for hook in spec["containerEdits"].get("hooks", ()):
        name, *words = (word for word in hook["args"][1:] if word != "hook")
        found[name] = (hook["hookName"], words)
    return found
