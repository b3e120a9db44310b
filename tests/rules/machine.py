"""A machine of one rule: one of `tests/nodes`, and its differences.

``tests/rules/<CODE>/`` holds ``pass/`` and ``fail/``, ``inputs``, and perhaps ``machine``, the
name of the machine in `tests/nodes` that both start from. Each of the two directories may hold

- ``files.txt``: files below the host's root that are added or replaced, in the form of
  :mod:`nodetopo.tools.capture.archive`;
- ``removed``: files and directories that are not there, one path a line;
- ``nvml.txt``: answers of NVML that replace those for the same call;
- ``pods.yaml``: Pod objects as the API server has them, ``node.yaml``: the Node object;
- ``podresources.yaml``: ``namespace/pod`` → container → ``devices`` (resource → ids), ``cpus``
  (``0-3``) and ``memory`` (NUMA node → bytes), as the kubelet's PodResources API has them;
- ``offer.yaml``: resource → id → NUMA nodes, what the kubelet can allocate by the same API;
- ``slices.yaml``: ResourceSlices of the node;
- ``configz.json`` and ``metrics.txt``: what the kubelet answers on these paths;
- ``rights.yaml``: ``verb resource`` → whether the agent's account may.

``inputs`` names, one a line, what the rule cannot do without: paths below the host's root, names
of the files above, or ``nvml <call>``. Without any single one of them it must not pass.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace

from nodetopo.kubeapi.pods import joined
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices, AssignedMemory, Container, Pod
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import Roots, discover
from nodetopo.probes.dra import devices_of
from nodetopo.probes.host.driver_holders import with_driver_holders
from nodetopo.probes.kubelet.api import settings_from_configz
from nodetopo.probes.kubelet.metrics import metrics_from_text
from nodetopo.probes.nvml.record import NvmlReading
from nodetopo.probes.pods.cgroups import with_cgroups
from nodetopo.probes.pods.objects import node_status_from_object, pod_from_object
from nodetopo.tools.capture.archive import parse
from tests.rules.bases import NODES, Bases, without

DEFAULT = "a100x4-nv4-4numa-2cx"
"""Four A100 on four NUMA nodes, two HCAs: small, and quick to copy."""
RECORDS = (
    "pods.yaml",
    "node.yaml",
    "podresources.yaml",
    "offer.yaml",
    "slices.yaml",
    "configz.json",
    "metrics.txt",
    "rights.yaml",
)
CALL = "nvml "


class Machine(Struct, frozen=True):
    """One directory, without the inputs named in *without*."""

    directory: Path
    bases: Bases
    without: frozenset[str] = frozenset()

    @property
    def base(self) -> str:
        """The name of the machine it starts from."""
        named = self.directory.parent / "machine"
        return named.read_text("utf-8").strip() if named.exists() else DEFAULT

    def snapshot(self) -> Snapshot:
        """Return what the agent learns of this machine."""
        if self.without:
            return self._read()
        if self.directory not in self.bases.snapshots:
            self.bases.snapshots[self.directory] = self._read()
        return self.bases.snapshots[self.directory]

    def _read(self) -> Snapshot:
        removed = (self._text("removed") or "").split()
        entries = parse(self._text("files.txt") or "")
        with self.bases.changed(self.base, removed, entries) as root, ExitStack() as aside:
            for name in self.without:
                if name not in RECORDS and not name.startswith(CALL):
                    aside.enter_context(without(root, name))
            roots = Roots(sysfs=root / "sys", procfs=root / "proc", host=root)
            snapshot = discover(roots, self._nvml, node="node", captured_at=None, counters=True)
            return self._with_records(snapshot, roots)

    def _nvml(self) -> NvmlReading:
        answers = _answers((NODES / self.base / "nvml.txt").read_text("utf-8"))
        answers |= _answers(self._text("nvml.txt") or "")
        for call in (name.removeprefix(CALL) for name in self.without if name.startswith(CALL)):
            answers = {key: line for key, line in answers.items() if key.split()[0] != call}
        return self.bases.reading("\n".join(answers.values()) + "\n")

    def _with_records(self, found: Snapshot, roots: Roots) -> Snapshot:
        pods = self._pods()
        whole = replace(
            found,
            kubelet=self._parsed("configz.json", settings_from_configz) or found.kubelet,
            kubelet_metrics=self._parsed("metrics.txt", metrics_from_text),
            node_status=self._parsed(
                "node.yaml", lambda text: node_status_from_object(yaml.safe_load(text))
            ),
            agent_rights=self._parsed("rights.yaml", yaml.safe_load),
            offer=self._parsed("offer.yaml", _offer),
            published=self._parsed("slices.yaml", lambda text: devices_of(yaml.safe_load(text))),
            pods=None if pods is None else with_cgroups(roots.sysfs, pods),
        )
        return with_driver_holders(whole, roots.procfs)

    def _pods(self) -> tuple[Pod, ...] | None:
        specified: tuple[Pod, ...] | None = self._parsed(
            "pods.yaml", lambda text: tuple(map(pod_from_object, yaml.safe_load_all(text)))
        )
        given: tuple[Pod, ...] | None = self._parsed("podresources.yaml", _given)
        if specified is None:
            return given
        return joined(specified, given or ())

    def _parsed(self, name: str, parse: Callable[[str], Any]) -> Any:
        text = self._text(name)
        return None if text is None else parse(text)

    def _text(self, name: str) -> str | None:
        path = self.directory / name
        return path.read_text("utf-8") if path.exists() and name not in self.without else None


def _answers(text: str) -> dict[str, str]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {line.partition("=")[0].strip(): line for line in lines if line}


def _offer(text: str) -> NodeOffer:
    document: Mapping[str, Mapping[str, list[int]]] = yaml.safe_load(text)
    return NodeOffer(
        devices=tuple(
            PlacedDevice(resource=resource, id=name, numa_nodes=tuple(nodes))
            for resource, devices in document.items()
            for name, nodes in devices.items()
        )
    )


def _given(text: str) -> tuple[Pod, ...]:
    document: Mapping[str, Mapping[str, Mapping[str, Any]]] = yaml.safe_load(text)
    return tuple(
        Pod(
            namespace=name.partition("/")[0],
            name=name.partition("/")[2],
            containers=tuple(_container(one, given) for one, given in containers.items()),
        )
        for name, containers in document.items()
    )


def _container(name: str, given: Mapping[str, Any]) -> Container:
    return Container(
        name=name,
        devices=tuple(
            AssignedDevices(resource=resource, ids=tuple(ids))
            for resource, ids in given.get("devices", {}).items()
        ),
        cpus=CpuSet.parse(given.get("cpus", "")),
        memory=tuple(
            AssignedMemory(kind="memory", size_bytes=size, numa_nodes=(node,))
            for node, size in given.get("memory", {}).items()
        ),
    )
