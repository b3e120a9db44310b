"""Configurations of kubelets, drawn at random: files, drop-ins in folders, and flags."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import yaml
from msgspec import Struct

HEADER = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
MAIN = "config.yaml"
DIRECTORY = "kubelet.conf.d"

_AMOUNTS = {
    "cpu": ("500m", "1", "2"),
    "memory": ("500Mi", "1Gi"),
    "pid": ("1000",),
    "ephemeral-storage": ("1Gi",),
}
_THRESHOLDS = {
    "memory.available": ("100Mi", "1Gi", "5%"),
    "nodefs.available": ("10%", "1Gi"),
    "imagefs.inodesFree": ("5%",),
}
_GATES = ("CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions", "MemoryQoS")
_SCALARS: Mapping[str, tuple[Any, ...]] = {
    "cpuManagerPolicy": ("static", "none", "", None),
    "memoryManagerPolicy": ("None", "", None),
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node", None),
    "topologyManagerScope": ("container", "pod", "", None),
    "reservedSystemCPUs": ("0", "0-1,56", "", None),
    "cgroupDriver": ("cgroupfs", "systemd", None),
    "cpuCFSQuota": (True, False, None),
    "podPidsLimit": (4096, 4096.0, -1, -5, 0, None),
    "maxPods": (64, 250.0, 0, None),
    "mergeDefaultEvictionSettings": (True, False),
    "memorySwap": ({"swapBehavior": "NoSwap"}, {"swapBehavior": None}, {}, None),
    "reservedMemory": (
        [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        [
            {"numaNode": 1, "limits": {"memory": "2Gi"}},
            {"numaNode": 0, "limits": {"hugepages-2Mi": "4Mi"}},
        ],
        [],
        None,
    ),
    "topologyManagerPolicyOptions": (
        {"prefer-closest-numa-nodes": "true"},
        {"max-allowable-numa-nodes": "16"},
        {"max-allowable-numa-nodes": None},
        {},
        None,
    ),
    "systemReservedCgroup": ("/system", "", None),
    "kubeReservedCgroup": ("/kube", None),
}
_FLAGS = (
    ("--cpu-manager-policy=static", "--kube_reserved=cpu=1"),
    ("--cpu-manager-policy", "none"),
    ("--topology-manager-policy=restricted",),
    ("--topology-manager-scope", "pod"),
    ("--reserved-cpus=2-3",),
    ("--reserved-cpus=",),
    ("--system-reserved=cpu=1, memory = 1Gi",),
    ("--system-reserved=memory=1Gi", "--system-reserved=pid=100"),
    ("--system-reserved=",),
    ("--kube-reserved=memory=2Gi,,cpu=250m",),
    ("--eviction-hard=memory.available<2Gi,nodefs.available<5%",),
    ("--eviction-hard=",),
    ("--reserved-memory=0:memory=1Gi,hugepages-2Mi=2Mi;1:memory=1Gi",),
    ("--reserved-memory=0:memory=1Gi", "--reserved-memory=1:memory=1Gi"),
    ("--feature-gates=MemoryQoS=false,CPUManagerPolicyAlphaOptions=T",),
    ("--feature-gates=MemoryQoS=1", "--feature-gates=CPUManagerPolicyBetaOptions=False"),
    ("--topology-manager-policy-options=prefer-closest-numa-nodes=true",),
    ("--cpu-cfs-quota=f",),
    ("--cpu-cfs-quota",),
    ("--fail-swap-on=false",),
    ("--pod-max-pids=0x400",),
    ("--pod-max-pids", "-7"),
    ("--max-pods=33",),
    ("--cgroup-driver=systemd",),
    ("--system-reserved-cgroup=/sys",),
)


class Configuration(Struct, frozen=True):
    """Files below ``/var/lib/kubelet``, and flags."""

    files: Mapping[str, str]
    flags: tuple[str, ...]


def configuration(seed: int) -> Configuration:
    """Return the same configuration for the same *seed*."""
    chance = Random(seed)
    files: dict[str, str] = {}
    flags: list[str] = []
    has_file, has_directory = chance.random() < 0.8, chance.random() < 0.8
    if has_file:
        files[MAIN] = _text(chance, _document(chance))
        flags.append(f"--config=/var/lib/kubelet/{MAIN}")
    if has_directory:
        names = ("10-a.conf", "20-b/x.conf", "20-b/c/y.conf", "20-b.conf", "9.conf", "30.yaml")
        for name in chance.sample(names, chance.randint(1, 4)):
            drop_in = _document(chance)
            if chance.random() < 0.2:
                recased = chance.choice((str.lower, str.upper, str.title))
                drop_in = {recased(key): value for key, value in drop_in.items()}
            files[f"{DIRECTORY}/{name}"] = _text(chance, drop_in)
        flags += ["--config-dir", f"/var/lib/kubelet/{DIRECTORY}"]
    for words in chance.sample(_FLAGS, chance.randint(0, 4)):
        flags += words
    # Without cgroups to enforce anything in, a kubelet lives only if it is to enforce nothing.
    flags += _nothing_to_enforce(chance, files)
    return Configuration(files, tuple(flags))


def _nothing_to_enforce(chance: Random, files: dict[str, str]) -> tuple[str, ...]:
    way = chance.randrange(3)
    if way == 0 and any(name.startswith(f"{DIRECTORY}/") for name in files):
        files[f"{DIRECTORY}/99.conf"] = yaml.safe_dump({**HEADER, "enforceNodeAllocatable": []})
        return ()
    return ("--enforce-node-allocatable=none",) if way == 1 else ("--enforce-node-allocatable=",)


def _document(chance: Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field, values in _SCALARS.items():
        if chance.random() < 0.25:
            found[field] = chance.choice(values)
    for field, amounts in (
        ("systemReserved", _AMOUNTS),
        ("kubeReserved", _AMOUNTS),
        ("evictionHard", _THRESHOLDS),
        ("featureGates", dict.fromkeys(_GATES, (True, False))),
    ):
        if chance.random() < 0.4:
            found[field] = _map(chance, amounts)
    return found


def _map(chance: Random, amounts: Mapping[str, tuple[Any, ...]]) -> dict[str, Any] | None:
    if chance.random() < 0.1:
        return None
    keys = chance.sample(sorted(amounts), chance.randint(0, len(amounts)))
    return {key: chance.choice((*amounts[key], None)) for key in keys}


def _text(chance: Random, document: dict[str, Any]) -> str:
    whole = {**HEADER, **document}
    if chance.random() < 0.3:
        return json.dumps(whole, indent="\t")
    return yaml.safe_dump(whole, sort_keys=False)
