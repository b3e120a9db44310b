"""What Kubernetes' own managers answer to cases, and what their state says of a node."""

import json
import shlex
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodetopo.model.gpu import Gpu
from nodetopo.model.kubelet_state import (
    CpuState,
    DeviceState,
    HeldDevices,
    HeldMemory,
    KubeletState,
    MemoryBlock,
    MemoryState,
)
from nodetopo.model.node import NodeOffer, NodeStatus, PlacedDevice
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Pod
from nodetopo.model.snapshot import Snapshot
from tests.lab.admission_case import GPU, Case
from tests.lab.build import binaries
from tests.lab.namespace import KUBELET_DIR, unshare_flags

_TIMEOUT_S = 1200.0


class Outcome(Struct, frozen=True):
    """What became of one case.

    Attributes:
        ended: why the managers did not start, or their panic; empty for neither.
        verdicts: one for each step: ``admit``, ``reason`` and ``message``.
        states: before the first step and after each.
    """

    ended: str
    verdicts: Sequence[Mapping[str, Any]]
    states: Sequence[Mapping[str, Any]]


def outcomes(cases: Iterable[Case], program: Path | None = None) -> list[Outcome]:
    """Play *cases* on the real managers, one after the other in one process."""
    flags = unshare_flags()
    assert flags is not None, "neither root nor user namespaces here"
    plugins = shlex.quote(str(KUBELET_DIR / "device-plugins"))
    lines = ["set -e", "mount -t tmpfs lab /var/lib", f"mkdir -p {plugins}", 'exec "$@"']
    program = program or binaries() / "admission"
    command = ["unshare", *flags, "sh", "-c", "\n".join(lines), "lab", str(program)]
    asked = "".join(json.dumps(case.for_kubelet()) + "\n" for case in cases)
    done = subprocess.run(
        command,
        input=asked,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={"TMPDIR": str(KUBELET_DIR), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [_outcome(json.loads(line)) for line in done.stdout.splitlines()]


def _outcome(found: dict[str, Any]) -> Outcome:
    ended = found.get("refusal") or found.get("panic") or ""
    return Outcome(ended, found["verdicts"] or (), found["states"] or ())


def snapshot(case: Case, state: Mapping[str, Any], pods: Sequence[Pod]) -> Snapshot:
    """Return what our probes would read of the node in that *state*, with *pods* on it."""
    return Snapshot(
        numa_nodes=case.machine.nodes,
        cpu=case.machine.cpu,
        kubelet=case.settings(),
        kubelet_state=KubeletState(
            cpu=_cpu(case, state), memory=_memory(case, state), devices=_devices(case, state)
        ),
        pods=tuple(pods),
        offer=NodeOffer(devices=tuple(_placed(case))),
        gpus=tuple(_gpus(case)),
        node_status=NodeStatus(capacity=Counter(one.resource for one in case.devices)),
    )


def _gpus(case: Case) -> Iterable[Gpu]:
    """Return the GPUs that NVML would list, the broken ones too."""
    gpus = [one for one in case.devices if one.resource == GPU]
    for index, one in enumerate(gpus):
        yield Gpu(index=index, uuid=one.id, numa_node=one.nodes[0] if one.nodes else None)


def _placed(case: Case) -> Iterable[PlacedDevice]:
    for one in case.devices:
        if one.healthy:
            yield PlacedDevice(resource=one.resource, id=one.id, numa_nodes=one.nodes or ())


def _cpu(case: Case, state: Mapping[str, Any]) -> CpuState:
    entries = {
        uid: {name: CpuSet.parse(text) for name, text in containers.items()}
        for uid, containers in state["cpus"].items()
    }
    default = CpuSet.parse(state["shared"]) if case.cpu == "static" else None
    return CpuState(policy=case.cpu, default=default, entries=entries)


def _memory(case: Case, state: Mapping[str, Any]) -> MemoryState:
    blocks = tuple(
        MemoryBlock(
            numa_node=int(node),
            kind=kind,
            total=table["total"],
            system_reserved=table["systemReserved"],
            allocatable=table["allocatable"],
            reserved=table["reserved"],
            free=table["free"],
            cells=tuple(found["cells"]),
        )
        for node, found in (state["nodes"] or {}).items()
        for kind, table in found["memoryMap"].items()
    )
    return MemoryState(policy=case.memory, blocks=blocks, entries=held_memory(state))


def held_memory(state: Mapping[str, Any]) -> dict[str, dict[str, tuple[HeldMemory, ...]]]:
    """Return what containers hold, by pod uid and container, by kind."""
    return {
        uid: {
            name: tuple(
                HeldMemory(kind=it["type"], size=it["size"], numa_nodes=tuple(it["numaAffinity"]))
                for it in sorted(blocks, key=lambda it: str(it["type"]))
            )
            for name, blocks in containers.items()
        }
        for uid, containers in (state["memory"] or {}).items()
    }


def _devices(case: Case, state: Mapping[str, Any]) -> DeviceState:
    nodes = {one.id: one.nodes for one in case.devices}
    held = []
    for uid, containers in state["devices"].items():
        for name, resources in containers.items():
            for resource, ids in resources.items():
                by_node: dict[str, tuple[str, ...]] = {}
                for id_ in sorted(ids):
                    for node in nodes[id_] or (-1,):
                        by_node[str(node)] = (*by_node.get(str(node), ()), id_)
                held.append(
                    HeldDevices(pod_uid=uid, container=name, resource=resource, ids=by_node)
                )
    registered: dict[str, tuple[str, ...]] = {}
    for one in case.devices:
        known = registered.setdefault(one.resource, ())
        registered[one.resource] = (*known, one.id) if one.healthy else known
    return DeviceState(held=tuple(held), registered=registered)
