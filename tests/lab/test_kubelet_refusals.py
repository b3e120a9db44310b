"""With what a kubelet starts, by our rules and by the kubelet itself."""

import itertools
import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.engine import evaluate
from nodetopo.components.audit.catalogue import rule
from nodetopo.formats.safe import load_json
from nodetopo.model.codec import decode
from nodetopo.model.kubelet_state import KubeletState
from nodetopo.model.node import NodeStatus
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.kubelet.state import cpu_state, memory_state
from tests.budget import cases
from tests.lab.build import kubernetes_version
from tests.lab.cluster import MACHINES
from tests.lab.lone_kubelet import SHAPE, LoneKubelet

pytestmark = [
    pytest.mark.lab,
    # A kubelet that ends while we ask resets the line, and Python 3.11 then forgets to close it
    # (Lib/ssl.py, SSLSocket._create).
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
]

VERSION = kubernetes_version()
CODES = ("KUB-002", "KUB-009", "KUB-010", "KUB-016", "KUB-017", "KUB-022", "KUB-023")
"""The rules of which a finding means that the kubelet does not start."""

CPU_FILE, MEMORY_FILE = "cpu_manager_state", "memory_manager_state"
FILE = "--config=/var/lib/kubelet/config.yaml"
NOTHING = "--enforce-node-allocatable="
HEADER = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,56,112,168"}
ALPHA = {"featureGates": {"CPUManagerPolicyAlphaOptions": True}}
PINNED = {"memoryManagerPolicy": "Static", "systemReserved": {"memory": "1Gi"}}
TIGHT = {"topologyManagerPolicy": "single-numa-node"}
LOOSE = {"topologyManagerPolicy": "best-effort"}


def _options(**options: str) -> dict[str, Any]:
    return {"cpuManagerPolicyOptions": {key.replace("_", "-"): on for key, on in options.items()}}


def _aligned(**options: str) -> dict[str, Any]:
    named = {key.replace("_", "-"): on for key, on in options.items()}
    return {**LOOSE, "topologyManagerPolicyOptions": named}


def _reserved(*limits: Mapping[str, str]) -> dict[str, Any]:
    return {
        "reservedMemory": [
            {"numaNode": number, "limits": dict(each)} for number, each in enumerate(limits)
        ]
    }


CASES: Mapping[str, dict[str, Any]] = {
    "nothing stated": {},
    "reserved by list": STATIC,
    "nothing reserved": {"cpuManagerPolicy": "static"},
    "half a CPU reserved": {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "500m"}},
    "all CPUs reserved": {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "224"}},
    "too many CPUs reserved": {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "225"}},
    "no quantity": {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "two"}},
    "below zero": {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "-1"}},
    "a CPU that is not there": {**STATIC, "reservedSystemCPUs": "0,224"},
    "a list with a blank": {**STATIC, "reservedSystemCPUs": "0, 1"},
    "a list backwards": {**STATIC, "reservedSystemCPUs": "3-1"},
    "a list beside a cgroup": {**STATIC, "kubeReservedCgroup": "/kube"},
    "options of none": _options(full_pcpus_only="true"),
    "options of none that are off": _options(full_pcpus_only="false"),
    "whole cores": {**STATIC, **_options(full_pcpus_only="1")},
    "a value of no truth": {**STATIC, **_options(full_pcpus_only="yes")},
    "an unknown option": {**STATIC, **_options(full_pcpu_only="true")},
    "strictness": {**STATIC, **_options(strict_cpu_reservation="true")},
    "an alpha option": {**STATIC, **_options(distribute_cpus_across_cores="true")},
    "an alpha option off": {**STATIC, **_options(distribute_cpus_across_cores="false")},
    "an alpha option with its gate": {
        **STATIC,
        **ALPHA,
        **_options(distribute_cpus_across_cores="true"),
    },
    "all alpha gates": {
        **STATIC,
        **LOOSE,
        "featureGates": {"AllAlpha": False, "CPUManagerPolicyAlphaOptions": True},
        **_options(align_by_socket="true"),
    },
    "sockets and single-numa-node": {
        **STATIC,
        **ALPHA,
        **TIGHT,
        **_options(align_by_socket="true"),
    },
    "a beta option": {**STATIC, **_options(distribute_cpus_across_numa="true")},
    "a beta option without its gate": {
        **STATIC,
        "featureGates": {"CPUManagerPolicyBetaOptions": False},
        **_options(distribute_cpus_across_numa="true"),
    },
    "caches and spreading": {
        **STATIC,
        **_options(prefer_align_cpus_by_uncorecache="true", distribute_cpus_across_numa="true"),
    },
    "nearest nodes": _aligned(prefer_closest_numa_nodes="true"),
    "an unknown option of topology": _aligned(prefer_closest="true"),
    "seven nodes": _aligned(max_allowable_numa_nodes="7"),
    "plus nine nodes": _aligned(max_allowable_numa_nodes="+9"),
    "many nodes": _aligned(max_allowable_numa_nodes="many"),
    "options of topology none": {"topologyManagerPolicyOptions": {"x": "y"}},
    "the sum": {**PINNED, **_reserved({"memory": "1124Mi"})},
    "the sum on two nodes": {**PINNED, **_reserved({"memory": "1Gi"}, {"memory": "100Mi"})},
    "half the sum": {**PINNED, **_reserved({"memory": "512Mi"})},
    "no sum": PINNED,
    "a node that is not there": {
        **PINNED,
        **_reserved({"memory": "1Gi"}, {"memory": "50Mi"}, {"memory": "50Mi"}),
    },
    "zero": {**PINNED, **_reserved({"memory": "1124Mi"}, {"memory": "0"})},
    "huge pages": {**PINNED, **_reserved({"memory": "1124Mi", "hugepages-2Mi": "2Mi"})},
    "without eviction": {
        **PINNED,
        "evictionHard": {"memory.available": "0%"},
        **_reserved({"memory": "1Gi"}),
    },
    "nothing kept at all": {
        "memoryManagerPolicy": "Static",
        "evictionHard": {"nodefs.available": "5%"},
    },
    "a threshold of zero": {
        **PINNED,
        "evictionHard": {"memory.available": "0"},
        **_reserved({"memory": "1Gi"}),
    },
}


@pytest.fixture(scope="module")
def lone(namespaces: None) -> Iterator[LoneKubelet]:
    """Return a machine for one kubelet after another."""
    del namespaces
    machine = LoneKubelet()
    yield machine
    machine.close()


def _snapshot() -> Snapshot:
    text = (MACHINES / SHAPE / "snapshot.json").read_text("utf-8")
    return replace(decode(text).snapshot, node_status=NodeStatus(kubelet_version=VERSION))


def _state(files: Mapping[str, str]) -> KubeletState | None:
    cpu, memory = files.get(CPU_FILE), files.get(MEMORY_FILE)
    return KubeletState(
        cpu=None if cpu is None else cpu_state(load_json(cpu)),
        memory=None if memory is None else memory_state(load_json(memory)),
    )


def _found(lone: LoneKubelet, files: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what our rules find in the settings on disk and the state files of before."""
    judged = replace(_snapshot(), kubelet_on_disk=lone.our_view(), kubelet_state=_state(files))
    report = evaluate(judged, map(rule, CODES))
    return [(one.rule.code, each.observed) for one in report.results for each in one.findings]


def _agree(lone: LoneKubelet, name: str, files: Mapping[str, str]) -> bool:
    starts = lone.start(files, (FILE, NOTHING))
    found = _found(lone, files)
    assert starts == (not found), f"{name}: {files}: {found}: {lone.log()[-2000:]}"
    return starts


def _files(settings: Mapping[str, Any]) -> dict[str, str]:
    return {"config.yaml": json.dumps({**HEADER, **settings})}


def test_a_kubelet_starts_where_our_rules_find_nothing_and_only_there(lone: LoneKubelet) -> None:
    started = [_agree(lone, name, _files(settings)) for name, settings in CASES.items()]
    assert (started.count(True) > 10, started.count(False) > 20) == (True, True)


def test_a_kubelet_starts_on_random_mixtures_where_our_rules_find_nothing(
    lone: LoneKubelet,
) -> None:
    names = [name for name, settings in CASES.items() if settings]
    for seed in range(cases(8, 20)):
        drawn = Random(seed).sample(names, 2)
        mixed = {**CASES[drawn[0]], **CASES[drawn[1]]}
        _agree(lone, " and ".join(drawn), _files(mixed))


def test_a_kubelet_starts_on_state_files_that_fit_and_on_no_others(lone: LoneKubelet) -> None:
    strict = {**STATIC, **_options(strict_cpu_reservation="true")}
    other = {**STATIC, "reservedSystemCPUs": "1,57,113,169"}
    pinned = {**PINNED, **_reserved({"memory": "1124Mi"})}
    spread = {**PINNED, **_reserved({"memory": "1Gi"}, {"memory": "100Mi"})}
    kinds: tuple[dict[str, Any], ...] = ({}, STATIC, strict, other, pinned, spread)
    kept = [_state_files(lone, settings) for settings in kinds]
    outcomes = [
        _agree(
            lone, f"{settings} on what is left of {kinds[before]}", {**_files(settings), **files}
        )
        for (before, files), settings in itertools.product(enumerate(kept), kinds)
    ]
    assert (outcomes.count(True), len(outcomes)) == (8, 36)


def _state_files(lone: LoneKubelet, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what a kubelet with *settings* leaves behind."""
    assert lone.start(_files(settings), (FILE, NOTHING)), lone.log()[-2000:]
    lone.stop()
    root = lone.host / "var" / "lib" / "kubelet"
    return {name: (root / name).read_text("utf-8") for name in (CPU_FILE, MEMORY_FILE)}
