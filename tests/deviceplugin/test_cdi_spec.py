import json
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.cdi import OWN_KIND
from nodetopo.deviceplugin.cdi_hooks import ENABLE_COMPAT, KEEP_NODES
from nodetopo.deviceplugin.cdi_spec import (
    GpuSpec,
    Roots,
    Spec,
    channel_spec,
    feature_spec,
    gpu_spec,
)
from nodetopo.deviceplugin.devices import Minors
from nodetopo.deviceplugin.driver_files import DriverFiles, HostPath
from nodetopo.deviceplugin.host_nodes import HostNodes
from nodetopo.deviceplugin.resources import offer
from nodetopo.deviceplugin.response import container_response
from nodetopo.deviceplugin.settings import PluginSettings
from nodetopo.model.cdi import device_name
from nodetopo.model.snapshot import Snapshot
from tests.deviceplugin import machines
from tests.deviceplugin.cdi_schema import problems
from tests.deviceplugin.machines import NODES, rules

SHAPES = tuple(sorted(path.name for path in NODES.iterdir() if path.is_dir()))
MIG = "h100x8-nvswitch-2numa-mig"
LIB = "/usr/lib64"
VERSION = "580.95.05"
HOOK = Path("/usr/bin/nvidia-cdi-hook")
FILES = DriverFiles(
    version=VERSION,
    libraries=(
        HostPath(f"{LIB}/libcuda.so.{VERSION}", f"{LIB}/libcuda.so.{VERSION}"),
        HostPath(f"{LIB}/libnvidia-ml.so.{VERSION}", f"{LIB}/libnvidia-ml.so.{VERSION}"),
        HostPath(f"{LIB}/vdpau/libvdpau.so.{VERSION}", f"{LIB}/vdpau/libvdpau.so.{VERSION}"),
    ),
    links=(("libcuda.so.1", f"{LIB}/libcuda.so"), (f"libcuda.so.{VERSION}", f"{LIB}/libcuda.so.1")),
    programs=(HostPath("/usr/bin/nvidia-smi", "/opt/nvidia-smi"),),
    sockets=(HostPath("/run/nvidia-persistenced/socket", "/run/nvidia-persistenced/socket"),),
)
node = cache(machines.node)
"""Decoding a machine takes longer than all else here."""

CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
NODES_THERE = (
    *CONTROL,
    *(f"nvidia{n}" for n in range(16)),
    *(f"nvidia-caps/nvidia-cap{n}" for n in range(100, 200)),
)


def minors(snapshot: Snapshot) -> dict[tuple[int, int, int | None], int]:
    """Number the capabilities of every MIG device of *snapshot*."""
    found: dict[tuple[int, int, int | None], int] = {}
    for gpu in snapshot.gpus:
        for one in gpu.mig.instances if gpu.mig else ():
            assert gpu.minor is not None
            assert one.gpu_instance is not None
            for compute in (None, one.compute_instance):
                found.setdefault((gpu.minor, one.gpu_instance, compute), 100 + len(found))
    return found


def written(
    snapshot: Snapshot,
    roots: Roots | None = None,
    files: DriverFiles = FILES,
    nodes: Collection[str] = NODES_THERE,
    numbers: Minors | None = None,
) -> GpuSpec:
    return gpu_spec(
        OWN_KIND,
        snapshot.gpus,
        minors(snapshot) if numbers is None else numbers,
        files=files,
        nodes=nodes,
        roots=roots or Roots(hook=HOOK),
    )


def spec_of(snapshot: Snapshot, roots: Roots | None = None) -> Any:
    found = written(snapshot, roots)
    assert found.spec is not None
    return found.spec


def paths(edits: Spec, key: str = "deviceNodes", name: str = "path") -> list[str]:
    return [one[name] for one in edits.get(key, ())]


def devices(spec: Spec) -> dict[str, list[str]]:
    return {one["name"]: paths(one["containerEdits"]) for one in spec["devices"]}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "roots", [Roots(hook=HOOK), Roots(), Roots(driver=Path("/run/nvidia"), dev=Path("/run/nvidia"))]
)
def test_every_machine_has_a_valid_specification(shape: str, roots: Roots) -> None:
    spec = spec_of(node(shape), roots)
    assert problems(json.loads(json.dumps(spec))) == ()
    assert "all" in devices(spec)


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_device_that_allocate_names_is_in_the_specification(
    shape: str, strategy: str
) -> None:
    snapshot = node(shape)
    named = {device_name(OWN_KIND, name) for name in devices(spec_of(snapshot))}
    chosen = replace(rules(), mig=type(rules().mig)(strategy))
    for resource in offer(snapshot, chosen, minors(snapshot)).resources:
        settings = PluginSettings(cdi_kind=OWN_KIND)
        answer = container_response(resource.devices, settings, HostNodes())
        assert {device.name for device in answer.cdi_devices} <= named


def test_the_specification_of_one_gpu_reads_so() -> None:
    snapshot = node("l4x1-1numa")
    uuid = snapshot.gpus[0].id
    own = {"deviceNodes": [{"path": "/dev/nvidia0", "permissions": "rw"}]}
    file = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
    assert spec_of(snapshot) == {
        "cdiVersion": "0.3.0",
        "kind": "device-plugin.nodetopo.io/gpu",
        "devices": [
            {"name": uuid, "containerEdits": own},
            {"name": "all", "containerEdits": own},
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": f"/dev/{name}", "permissions": "rw"} for name in CONTROL],
            "mounts": [
                {"hostPath": at, "containerPath": path, "options": file}
                for path, at in (
                    (FILES.libraries[0].path, FILES.libraries[0].at),
                    (FILES.libraries[1].path, FILES.libraries[1].at),
                    (FILES.libraries[2].path, FILES.libraries[2].at),
                    ("/usr/bin/nvidia-smi", "/opt/nvidia-smi"),
                )
            ]
            + [
                {
                    "hostPath": "/run/nvidia-persistenced/socket",
                    "containerPath": "/run/nvidia-persistenced/socket",
                    "options": ["nosuid", "nodev", "rbind", "rprivate", "noexec"],
                }
            ],
            "hooks": [
                {
                    "hookName": "createContainer",
                    "path": "/usr/bin/nvidia-cdi-hook",
                    "args": [
                        *("nvidia-cdi-hook", "create-symlinks"),
                        *("--link", f"libcuda.so.1::{LIB}/libcuda.so"),
                        *("--link", f"libcuda.so.{VERSION}::{LIB}/libcuda.so.1"),
                    ],
                },
                {
                    "hookName": "createContainer",
                    "path": "/usr/bin/nvidia-cdi-hook",
                    "args": [
                        *("nvidia-cdi-hook", "update-ldcache"),
                        *("--folder", LIB, "--folder", f"{LIB}/vdpau"),
                    ],
                },
            ],
        },
    }


def test_nvidia_ctk_is_called_with_its_own_subcommand() -> None:
    spec = spec_of(node("l4x1-1numa"), Roots(hook=Path("/usr/bin/nvidia-ctk")))
    calls = [hook["args"][:3] for hook in spec["containerEdits"]["hooks"]]
    assert calls == [
        ["nvidia-ctk", "hook", "create-symlinks"],
        ["nvidia-ctk", "hook", "update-ldcache"],
    ]


def test_a_mig_device_is_its_gpus_node_and_two_capabilities() -> None:
    snapshot = node(MIG)
    gpu = next(gpu for gpu in snapshot.gpus if gpu.mig and gpu.mig.instances)
    assert gpu.mig is not None
    found = devices(spec_of(snapshot))
    numbers = minors(snapshot)
    for one in gpu.mig.instances:
        assert one.gpu_instance is not None
        both = [
            numbers[gpu.minor or 0, one.gpu_instance, compute]
            for compute in (None, one.compute_instance)
        ]
        caps = [f"/dev/nvidia-caps/nvidia-cap{number}" for number in both]
        assert found[one.uuid] == [f"/dev/nvidia{gpu.minor}", *caps]


def test_all_is_every_node_once_but_those_of_lost_gpus() -> None:
    snapshot = node("h100x8-nvswitch-2numa-8cx7")
    gpus = (replace(snapshot.gpus[0], is_lost=True), *snapshot.gpus[1:])
    found = devices(spec_of(replace(snapshot, gpus=gpus)))
    assert found["all"] == [f"/dev/nvidia{n}" for n in range(1, 8)]
    assert found[gpus[0].id] == ["/dev/nvidia0"]  # its pods may start again


def test_other_roots_are_the_hosts_and_not_the_containers() -> None:
    roots = Roots(driver=Path("/run/nvidia/driver"), dev=Path("/run/dev-root"), hook=HOOK)
    spec = spec_of(node("l4x1-1numa"), roots)
    (gpu, _) = spec["devices"]
    assert gpu["containerEdits"]["deviceNodes"] == [
        {
            "path": "/dev/nvidia0",
            "permissions": "rw",
            "hostPath": "/run/dev-root/dev/nvidia0",
        }
    ]
    mount = spec["containerEdits"]["mounts"][0]
    assert mount["hostPath"] == f"/run/nvidia/driver{LIB}/libcuda.so.{VERSION}"
    assert mount["containerPath"] == f"{LIB}/libcuda.so.{VERSION}"
    assert spec["cdiVersion"] == "0.5.0"  # for hostPath


def test_the_newer_hooks_have_the_arguments_of_nvidias() -> None:
    roots = Roots(hook=HOOK, hooks=frozenset((ENABLE_COMPAT, KEEP_NODES)))
    spec = spec_of(node("l4x1-1numa"), roots)
    assert [hook["args"] for hook in spec["containerEdits"]["hooks"]] == [
        ["nvidia-cdi-hook", "enable-cuda-compat", f"--host-driver-version={VERSION}"],
        ["nvidia-cdi-hook", "disable-device-node-modification"],
    ]


def test_without_a_hook_libraries_are_mounted_at_their_links_as_well() -> None:
    found = written(node("l4x1-1numa"), Roots())
    assert found.spec is not None
    edits = found.spec["containerEdits"]
    assert "hooks" not in edits
    host = {one["containerPath"]: one["hostPath"] for one in edits["mounts"]}
    for link in ("libcuda.so", "libcuda.so.1"):
        assert host[f"{LIB}/{link}"] == f"{LIB}/libcuda.so.{VERSION}"
    (warning,) = found.warnings
    assert "the host has no nvidia-cdi-hook" in warning


def test_without_the_library_of_cuda_there_is_no_specification() -> None:
    files = replace(FILES, libraries=FILES.libraries[1:])
    found = written(node("l4x1-1numa"), Roots(driver=Path("/run/nvidia/driver")), files)
    assert found.spec is None
    assert found.refusal is not None
    cause, _, cure = found.refusal.partition(" — ")
    assert f"no libcuda.so.{VERSION} was found below /run/nvidia/driver" in cause
    assert "set driver-root" in cure


def test_without_the_library_of_nvml_there_is_a_warning() -> None:
    files = replace(FILES, libraries=FILES.libraries[:1])
    found = written(node("l4x1-1numa"), files=files)
    assert found.spec is not None
    (warning,) = found.warnings
    assert f"no libnvidia-ml.so.{VERSION}" in warning


@pytest.mark.parametrize("absent", CONTROL)
def test_a_node_without_which_cuda_does_not_start_is_indispensable(absent: str) -> None:
    nodes = [name for name in NODES_THERE if name != absent]
    found = written(node("l4x1-1numa"), Roots(dev=Path("/run/dev"), hook=HOOK), nodes=nodes)
    if absent == "nvidia-uvm-tools":
        assert found.refusal is None
    else:
        assert found.spec is None
        assert f"without /run/dev/dev/{absent} no container" in str(found.refusal)


def test_a_device_whose_node_does_not_exist_is_left_out_and_named() -> None:
    snapshot = node("h100x8-nvswitch-2numa-8cx7")
    found = written(snapshot, nodes=[name for name in NODES_THERE if name != "nvidia3"])
    assert found.spec is not None
    named = devices(found.spec)
    assert set(named) == {"all", *(gpu.id for gpu in snapshot.gpus if gpu.index != 3)}
    assert "/dev/nvidia3" not in named["all"]
    reason = f"GPU3 ({snapshot.gpus[3].id}) needs /dev/nvidia3, which does not exist"
    assert found.left_out == {snapshot.gpus[3].id: reason}


def test_a_mig_device_needs_the_nodes_of_both_its_instances() -> None:
    snapshot = node(MIG)
    gpu = next(gpu for gpu in snapshot.gpus if gpu.mig and gpu.mig.instances)
    assert gpu.mig is not None
    one = gpu.mig.instances[0]
    assert one.gpu_instance is not None
    number = minors(snapshot)[gpu.minor or 0, one.gpu_instance, one.compute_instance]
    absent = f"nvidia-caps/nvidia-cap{number}"
    found = written(snapshot, nodes=[name for name in NODES_THERE if name != absent])
    assert list(found.left_out) == [one.uuid]
    assert f"needs /dev/{absent}, which does not exist" in found.left_out[one.uuid]


def test_where_no_device_has_its_nodes_there_is_no_specification() -> None:
    found = written(node("l4x1-1numa"), nodes=CONTROL)
    assert found.spec is None
    assert "no device can be described: GPU0" in str(found.refusal)
    assert "needs /dev/nvidia0, which does not exist" in str(found.refusal)


def test_devices_whose_nodes_are_unknown_are_left_out_and_named() -> None:
    snapshot = node(MIG)
    gpus = (replace(snapshot.gpus[0], minor=None), *snapshot.gpus[1:])
    found = written(replace(snapshot, gpus=gpus), numbers={})
    assert found.spec is not None
    assert set(devices(found.spec)) == {"all", *(gpu.id for gpu in gpus[1:])}
    instances = sum(len(gpu.mig.instances) for gpu in gpus if gpu.mig)
    assert len(found.warnings) == len(found.left_out) == 1 + instances > 1
    assert gpus[0].id in found.warnings[0]


def test_no_gpu_that_can_be_named_has_no_specification() -> None:
    snapshot = node("l4x1-1numa")
    nameless = tuple(replace(gpu, minor=None) for gpu in snapshot.gpus)
    found = written(replace(snapshot, gpus=nameless))
    assert found.spec is None
    assert "no known minor number" in str(found.refusal)


@pytest.mark.parametrize(
    "spec",
    [
        channel_spec("a.b/imex-channel", [0], Roots(dev=Path("/run"))),
        feature_spec("a.b/gds", ["nvidia-fs0"], [HostPath("/run/udev", "/run/udev")], Roots()),
        feature_spec("a.b/c.d", ["gdrdrv"], [], Roots(dev=Path("/run"))),
    ],
)
def test_what_goes_with_gpus_has_valid_specifications(spec: Spec) -> None:
    assert problems(spec) == ()


def test_a_channel_is_a_device_by_its_number() -> None:
    spec = channel_spec("a.b/imex-channel", [0], Roots())
    assert spec == {
        "cdiVersion": "0.5.0",  # for a name that is a digit
        "kind": "a.b/imex-channel",
        "devices": [
            {
                "name": "0",
                "containerEdits": {
                    "deviceNodes": [
                        {"path": "/dev/nvidia-caps-imex-channels/channel0", "permissions": "rw"}
                    ]
                },
            }
        ],
    }


def test_nothing_has_no_specification() -> None:
    assert channel_spec("a.b/c", [], Roots()) is None
    assert feature_spec("a.b/c", [], [HostPath("/run/udev", "/run/udev")], Roots()) is None


def _broken(spec: Any) -> Iterable[Any]:
    yield {**spec, "more": 1}
    yield {**spec, "devices": []}
    yield {**spec, "cdiVersion": "0.5.0"}
    yield {**spec, "devices": [*spec["devices"], spec["devices"][0]]}
    yield {**spec, "devices": [{"name": "a/b", "containerEdits": {"env": ["A=1"]}}]}
    yield {**spec, "devices": [{"name": "a", "containerEdits": {}}]}
    yield {**spec, "devices": [{"name": "a", "containerEdits": {"env": ["A"]}}]}


def test_the_schema_refuses_what_a_runtime_refuses() -> None:
    good = spec_of(node("l4x1-1numa"))
    assert problems(good) == ()
    assert all(problems(broken) for broken in _broken(good))
