"""State files and checkpoints of the kubelet, as it writes them and as it never would."""

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodetopo.model.kubelet_state import (
    CpuState,
    DeviceState,
    HeldDevices,
    HeldMemory,
    KubeletState,
    MemoryBlock,
    MemoryState,
)
from nodetopo.model.numa import CpuSet
from nodetopo.probes.kubelet.state import CHECKPOINT, DeviceCheckpoint, read_kubelet_state
from nodetopo.probes.sysfs.tree import Tree

KUBELET = "var/lib/kubelet"
CPU = f"{KUBELET}/cpu_manager_state"
MEMORY = f"{KUBELET}/memory_manager_state"
PLUGINS = f"{KUBELET}/device-plugins"
DEVICES = f"{PLUGINS}/kubelet_internal_checkpoint"

CPU_136 = {
    "policyName": "static",
    "defaultCpuSet": "0,4-7",
    "entries": {"uid-a": {"main": "1-2", "side": "3"}},
    "checksum": 1353318690,
}
CPU_STATE = CpuState(
    policy="static",
    default=CpuSet.parse("0,4-7"),
    entries={"uid-a": {"main": CpuSet.parse("1-2"), "side": CpuSet.parse("3")}},
)
TABLE = {"total": 100, "systemReserved": 10, "allocatable": 90, "reserved": 20, "free": 70}
MEMORY_136 = {
    "policyName": "Static",
    "machineState": {
        "1": {"numberOfAssignments": 0, "memoryMap": {"memory": TABLE}, "cells": [1]},
        "0": {
            "numberOfAssignments": 2,
            "memoryMap": {"memory": TABLE, "hugepages-2Mi": TABLE},
            "cells": [0, 1],
        },
    },
    "entries": {"uid-a": {"main": [{"numaAffinity": [0], "type": "memory", "size": 20}]}},
    "checksum": 2,
}
MEMORY_STATE = MemoryState(
    policy="Static",
    blocks=tuple(
        MemoryBlock(
            numa_node=node,
            kind=kind,
            total=100,
            system_reserved=10,
            allocatable=90,
            reserved=20,
            free=70,
            cells=cells,
        )
        for node, kind, cells in (
            (0, "hugepages-2Mi", (0, 1)),
            (0, "memory", (0, 1)),
            (1, "memory", (1,)),
        )
    ),
    entries={"uid-a": {"main": (HeldMemory(kind="memory", size=20, numa_nodes=(0,)),)}},
)
DEVICES_136 = {
    "Data": {
        "PodDeviceEntries": [
            {
                "PodUID": "uid-a",
                "ContainerName": "main",
                "ResourceName": "nvidia.com/gpu",
                "DeviceIDs": {"1": ["GPU-c", "GPU-b"], "-1": ["GPU-a"]},
                "AllocResp": "Cg==",
            }
        ],
        "RegisteredDevices": {"nvidia.com/gpu": ["GPU-b", "GPU-a"], "x/y": None},
    },
    "Checksum": 3,
}
DEVICE_STATE = DeviceState(
    held=(
        HeldDevices(
            pod_uid="uid-a",
            container="main",
            resource="nvidia.com/gpu",
            ids={"-1": ("GPU-a",), "1": ("GPU-b", "GPU-c")},
        ),
    ),
    registered={"nvidia.com/gpu": ("GPU-a", "GPU-b"), "x/y": ()},
)


def write(host: Path, files: Mapping[str, Any]) -> None:
    for name, content in files.items():
        path = host / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_text(text, "utf-8")


def state(host: Path, files: Mapping[str, Any]) -> KubeletState:
    write(host, files)
    found, issues = read_kubelet_state(host, None)
    assert issues == ()
    assert found is not None
    return found


def reasons(host: Path, files: Mapping[str, Any]) -> dict[str, str]:
    write(host, files)
    _, issues = read_kubelet_state(host, None)
    return {issue.subject: issue.reason for issue in issues}


def test_all_of_1_36_is_read(tmp_path: Path) -> None:
    files = {
        CPU: CPU_136,
        MEMORY: MEMORY_136,
        DEVICES: DEVICES_136,
        f"{PLUGINS}/kubelet.sock": "",
        f"{PLUGINS}/nvidia-gpu.sock": "",
        f"{PLUGINS}/.half-written": "",
        f"{PLUGINS}/DEPRECATION": "",
    }
    assert state(tmp_path, files) == KubeletState(
        cpu=CPU_STATE,
        memory=MEMORY_STATE,
        devices=DEVICE_STATE,
        plugin_sockets=("nvidia-gpu.sock",),
    )


def test_in_1_37_the_text_inside_counts(tmp_path: Path) -> None:
    stale = {"policyName": "none", "defaultCpuSet": "", "checksum": 9, "dataChecksum": 8}
    bare = {"policyName": "None", "machineState": None, "checksum": 9, "dataChecksum": 8}
    files = {
        CPU: {**stale, "data": json.dumps({**CPU_136, "baselines": {}})},
        MEMORY: {**bare, "data": json.dumps(MEMORY_136)},
    }
    assert state(tmp_path, files) == KubeletState(cpu=CPU_STATE, memory=MEMORY_STATE)


def test_policies_that_pin_nothing_have_nothing(tmp_path: Path) -> None:
    files = {
        CPU: {"policyName": "none", "defaultCpuSet": "", "checksum": 1},
        MEMORY: {"policyName": "None", "machineState": {}, "checksum": 1},
        DEVICES: {"Data": {"PodDeviceEntries": None, "RegisteredDevices": None}, "Checksum": 1},
    }
    assert state(tmp_path, files) == KubeletState(
        cpu=CpuState(policy="none", entries={}),
        memory=MemoryState(policy="None", entries={}),
        devices=DeviceState(registered={}),
        plugin_sockets=(),
    )


def test_state_files_follow_the_root_directory_and_plugins_do_not(tmp_path: Path) -> None:
    write(tmp_path, {"data/k/cpu_manager_state": CPU_136, DEVICES: DEVICES_136})
    found, issues = read_kubelet_state(tmp_path, "/data/k")
    assert issues == ()
    assert found == KubeletState(cpu=CPU_STATE, devices=DEVICE_STATE, plugin_sockets=())


def test_a_machine_without_kubelet_has_no_state(tmp_path: Path) -> None:
    assert read_kubelet_state(tmp_path, None) == (None, ())


def test_a_half_written_file_is_an_issue_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path, {CPU: json.dumps(CPU_136)[:60], MEMORY: MEMORY_136})
    found, (issue,) = read_kubelet_state(tmp_path, None)
    assert found == KubeletState(memory=MEMORY_STATE)
    assert issue.subject == "/var/lib/kubelet/cpu_manager_state"
    assert issue.reason.startswith("not JSON: ")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not JSON: Expecting value: line 1, column 1"),
        ("[]", "expected an object, found list"),
        ("{}", "policyName: expected a text, found NoneType"),
        ({**CPU_136, "defaultCpuSet": 5}, "defaultCpuSet: expected a text, found int"),
        ({**CPU_136, "defaultCpuSet": "1-"}, "defaultCpuSet: not a CPU list: '1-'"),
        ({**CPU_136, "entries": {"u": "1"}}, "entries.u: expected an object, found str"),
        (
            {**CPU_136, "entries": {"u": {str(n): "0-65535" for n in range(3)}}},
            "entries: more than 131072 CPUs",
        ),
        ({**CPU_136, "data": "{"}, "data: not JSON: Expecting property name"),
        ({**CPU_136, "data": "[" * 100_000}, "data: nested more than 64 deep"),
        ('{"policyName": ' + "[" * 100_000, "nested more than 64 deep"),
        ('{"a": "' + "x" * (4 << 20), "larger than 4 MiB"),
    ],
    ids=range(11),
)
def test_a_malformed_cpu_state_is_an_issue(tmp_path: Path, content: Any, reason: str) -> None:
    (found,) = reasons(tmp_path, {CPU: content}).values()
    assert found.startswith(reason)


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        ({"x": {}}, "machineState.x: expected the number of a NUMA node"),
        ({"0": []}, "machineState.0: expected an object, found list"),
        (
            {"0": {"memoryMap": {"memory": {**TABLE, "free": -1}}}},
            "machineState.0.memoryMap.memory.free: expected a whole number from 0 on, found int",
        ),
        (
            {"0": {"cells": [True]}},
            "machineState.0.cells[0]: expected a whole number from 0 on, found bool",
        ),
        ({"0": {"cells": 1}}, "machineState.0.cells: expected a list, found int"),
    ],
)
def test_a_malformed_memory_state_is_an_issue(tmp_path: Path, machine: Any, reason: str) -> None:
    content = {**MEMORY_136, "machineState": machine}
    assert reasons(tmp_path, {MEMORY: content}) == {f"/{MEMORY}": reason}


def test_a_malformed_checkpoint_is_an_issue(tmp_path: Path) -> None:
    content = {"Data": {"PodDeviceEntries": [{"PodUID": "u", "DeviceIDs": ["a"]}]}}
    reason = "Data.PodDeviceEntries[0].DeviceIDs: expected an object, found list"
    assert reasons(tmp_path, {DEVICES: content}) == {f"/{DEVICES}": reason}


def test_bytes_that_are_no_text_are_an_issue(tmp_path: Path) -> None:
    write(tmp_path, {CPU: ""})
    (tmp_path / CPU).write_bytes(b"\xff\xfe{")
    assert "can't decode byte" in reasons(tmp_path, {})[f"/{CPU}"]


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    (tmp_path / KUBELET).mkdir(parents=True)
    os.mkfifo(tmp_path / CPU)
    assert reasons(tmp_path, {}) == {f"/{CPU}": "not a regular file"}


def test_a_directory_of_plugins_that_is_a_link_in_a_circle_is_an_issue(tmp_path: Path) -> None:
    (tmp_path / KUBELET).mkdir(parents=True)
    (tmp_path / PLUGINS).symlink_to("device-plugins")
    assert set(reasons(tmp_path, {})) == {f"/{PLUGINS}", f"/{DEVICES}"}


def checkpoint(*entries: tuple[str, str, str, Mapping[str, Any]]) -> str:
    names = ("PodUID", "ContainerName", "ResourceName", "DeviceIDs")
    held = [dict(zip(names, entry, strict=True)) for entry in entries] or None
    return json.dumps({"Data": {"PodDeviceEntries": held, "RegisteredDevices": {}}})


def replace_file(path: Path, content: str) -> None:
    """Replace a file as the kubelet does."""
    new = path.with_suffix(".new")
    new.write_text(content, "utf-8")
    new.rename(path)


def test_the_checkpoint_is_read_again_once_it_is_replaced(tmp_path: Path) -> None:
    path, read = tmp_path / CHECKPOINT, DeviceCheckpoint(tmp_path)
    assert read.records() is None
    replace_file(path, checkpoint())
    assert read.records() == frozenset()
    entry = ("u-1", "init", "nvidia.com/gpu", {"0": ["a"], "1": ["b", "a"], "-1": []})
    replace_file(path, checkpoint(entry))
    first = read.records()
    assert first == frozenset({("u-1", "init", "nvidia.com/gpu", frozenset({"a", "b"}))})
    assert read.records() is first
    replace_file(path, '{"Data": ')
    assert read.records() is None
    replace_file(path, checkpoint(entry))
    assert read.records() == first
    path.unlink()
    assert read.records() is None


def test_a_checkpoint_that_one_read_missed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / CHECKPOINT).write_text(checkpoint(), "utf-8")
    read = DeviceCheckpoint(tmp_path)

    def fails(*_: object) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(Tree, "content", fails)
        assert read.records() is None
    assert read.records() == frozenset()
