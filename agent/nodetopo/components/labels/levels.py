"""A node's position in its cluster's network: from labels of others, or a file, to our tiers.

A tier is a level of the network above the node; tier 0 is the nearest, as with Topograph.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from reprlib import Repr
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from nodetopo.components.labels.label import Label
from nodetopo.components.labels.rules import DEFAULT_PREFIX
from nodetopo.errors import InputError, closest

MAX_TIERS = 8
"""KAI and Kueue accept 16 levels, including region, zone, NVLink and the host."""

REGION = "topology.kubernetes.io/region"
ZONE = "topology.kubernetes.io/zone"
"""Well-known labels of Kubernetes, which every cloud sets; broader than any tier."""

_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
"""FNV-1a of 64 bits (draft-eastlake-fnv, section 5)."""

_PLAIN = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_]{0,61}[A-Za-z0-9])?")
"""A label value (k8s.io/apimachinery validation) without dots."""

_JOINT = "__"
_FIELDS = ("labels", "nodes", "qualified")

_SHORT = Repr()
"""YAML aliases make a list of a few lines one of millions of entries, too long to print."""
_SHORT.maxlevel = 2


class Platform(Struct, frozen=True, kw_only=True):
    """A platform's way of labelling nodes."""

    name: str  # in the settings
    keys: tuple[str, ...]  # label keys, tier 0 first
    origin: str  # their writer, for the reference page


PLATFORMS: tuple[Platform, ...] = (
    Platform(
        name="topograph",
        keys=tuple(f"fabric.topograph.run/tier-{tier}" for tier in range(MAX_TIERS)),
        origin="Topograph 1.0",
    ),
    Platform(
        name="topograph-0.5",
        keys=(
            "network.topology.nvidia.com/leaf",
            "network.topology.nvidia.com/spine",
            "network.topology.nvidia.com/core",
        ),
        origin="Topograph up to 0.5",
    ),
    Platform(
        name="topograph-0.1",
        keys=(
            "network.topology.nvidia.com/block",
            "network.topology.nvidia.com/spine",
            "network.topology.nvidia.com/datacenter",
        ),
        origin="Topograph 0.1",
    ),
    Platform(
        name="aws-4",
        keys=tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (4, 3, 2, 1)),
        origin="Amazon EKS, instance types of four layers",
    ),
    Platform(
        name="aws",
        keys=tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (3, 2, 1)),
        origin="Amazon EKS",
    ),
    Platform(
        name="gke",
        keys=("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
        origin="Google GKE",
    ),
    Platform(
        name="oci",
        keys=(
            "oci.oraclecloud.com/rdma.local_block_id",
            "oci.oraclecloud.com/rdma.network_block_id",
            "oci.oraclecloud.com/rdma.hpc_island_id",
        ),
        origin="Oracle OKE",
    ),
    Platform(
        name="oci-host",
        keys=("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
        origin="Oracle OKE, older images",
    ),
    Platform(
        name="coreweave",
        keys=tuple(
            f"backend.coreweave.cloud/{level}" for level in ("leafgroup", "superpod", "fabric")
        ),
        origin="CoreWeave CKS",
    ),
    Platform(
        name="coreweave-ib",
        keys=tuple(f"ib.coreweave.cloud/{level}" for level in ("leafgroup", "superpod", "fabric")),
        origin="CoreWeave CKS, older clusters",
    ),
    Platform(
        name="crusoe",
        keys=("crusoe.ai/pod.id", "crusoe.ai/ib.partition.id"),
        origin="Crusoe Cloud",
    ),
)
"""In the order in which they are tried: what an operator installed comes before the cloud's own.

They are data, because every platform has its own names and no standard is coming
(kubernetes/enhancements 4962 was closed).

Sources: NVIDIA/topograph docs/reference/node-labels (1.0, 0.5) and docs/engines/k8s (0.1), its
Crusoe provider; EKS user guide "ml-workload-topology"; GKE guide "schedule-gke-workloads-tas";
oracle-quickstart/oci-hpc-oke; CoreWeave CKS documentation of node labels.
"""


def platform(name: str) -> Platform:
    """Return the platform called *name*.

    Raises:
        InputError: there is none.
    """
    by_name = {platform.name: platform for platform in PLATFORMS}
    if name in by_name:
        return by_name[name]
    close = closest(name, by_name)
    hint = f"did you mean {close!r}? " if close else ""
    raise InputError(f"unknown platform {name!r}", f"{hint}known are: {', '.join(by_name)}")


class Level(Struct, frozen=True, kw_only=True):
    """One level that a node's labels name."""

    name: str  # ``region``, ``zone``, or ``tier-<n>``, 0 being the nearest to the node
    # key, value: the label on the Node.
    key: str
    value: str


def node_levels(labels: Mapping[str, str], only: Platform | None = None) -> tuple[Level, ...]:
    """Return the levels that the Node's *labels* name, broadest first.

    All tiers come from one platform: *only*, or the first whose tier 0 is present. An empty value,
    which some clouds leave, does not count. A missing broader tier is left out; the others keep
    their numbers.
    """
    candidates = PLATFORMS if only is None else (only,)
    matching = next((platform for platform in candidates if labels.get(platform.keys[0])), None)
    keys = tuple(enumerate(matching.keys if matching else ()))
    named = (("region", REGION), ("zone", ZONE), *((f"tier-{n}", key) for n, key in keys[::-1]))
    return tuple(
        Level(name=name, key=key, value=labels[key]) for name, key in named if labels.get(key)
    )


def tiers(levels: Iterable[Level]) -> dict[str, str]:
    """Return the tiers among *levels* as ``LabelRules.levels`` has them: name → label value.

    Region and zone have well-known labels already and are not published again.
    """
    values = {level.name: level_value(level.value) for level in levels}
    return {
        name: value
        for name, value in values.items()
        if name.startswith("tier-") and value is not None
    }


class LevelFile(Struct, frozen=True, kw_only=True):
    """A file with the positions of nodes, for clusters without a known platform's labels."""

    labels: tuple[str, ...] = ()  # keys of node labels, tier 0 first
    # Names of places by node, tier 0 first; they override labels.
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    # Whether the broader places are part of a place's name, so that r2 of b3 becomes b3__r2,
    # because racks in different blocks share numbers.
    is_qualified: bool = True


def level_file(document: Any) -> LevelFile:
    """Return the levels in *document*, a parsed YAML or JSON file.

    It has ``labels``, a list of label keys; or ``nodes``, a list of values by node; and
    ``qualified``, true by default.
    """
    if not isinstance(document, dict):
        raise InputError("levels: not a mapping", f"give it {' and '.join(_FIELDS[:2])}")
    for name in document:
        if name not in _FIELDS:
            close = closest(str(name), _FIELDS)
            cure = f"did you mean {close!r}?" if close else f"known are: {', '.join(_FIELDS)}"
            raise InputError(f"levels: unknown field {name!r}", cure)
    is_qualified = document.get("qualified", True)
    if not isinstance(is_qualified, bool):
        raise InputError(f"levels.qualified: {_SHORT.repr(is_qualified)}", "write true or false")
    labels = _names("levels.labels", document.get("labels", []))
    by_node = document.get("nodes", {})
    if not isinstance(by_node, dict):
        raise InputError("levels.nodes: not a mapping", "write a list of places for each node")
    nodes = {
        _text(f"levels.nodes.{node}", node): _names(f"levels.nodes.{node}", places)
        for node, places in by_node.items()
    }
    return LevelFile(labels=labels, nodes=MappingProxyType(nodes), is_qualified=is_qualified)


def file_tiers(file: LevelFile, node: str | None, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the tiers of *node* with *labels*, in the form of ``LabelRules.levels``.

    Places below an unknown one cannot be distinguished, so the tiers end there, unless the file
    declares its names unambiguous.
    """
    places = file.nodes.get(node or "") or tuple(labels.get(key, "") for key in file.labels)
    by_tier: dict[str, str] = {}
    around: list[str] = []
    for tier, place in reversed(tuple(enumerate(places))):
        around.append(place)
        value = level_value(place)
        if value is not None and file.is_qualified:
            value = qualified(around) if all(around) else None
        if value is not None:
            by_tier[f"tier-{tier}"] = value
    return by_tier


def level_value(raw: str) -> str | None:
    """Return *raw* as the value of a level: unchanged if valid, otherwise its digest.

    Topograph writes the same digest for names over 63 characters, so that values stay comparable;
    here it also replaces names with dots or invalid characters: KAI joins the values of all levels
    with dots, so that ``r.1`` below ``a`` and ``1`` below ``a.r`` are the same place to it.
    ``None`` for an empty name.
    """
    if not raw:
        return None
    return raw if _PLAIN.fullmatch(raw) else digest(raw)


def qualified(names: Sequence[str]) -> str:
    """Return the value of the last of *names*, distinguished by its parents, broadest first.

    Readable where every name is plain and has no joint, so that no two places share a value:
    kube-scheduler, LWS, JobSet and Volcano treat equal values as the same place, so that rack ``1``
    of two blocks is one rack.
    """
    joined = _JOINT.join(names)
    is_clear = all(_PLAIN.fullmatch(name) and _JOINT not in name for name in names)
    if is_clear and _PLAIN.fullmatch(joined):
        return joined
    # With their lengths, so that no character of a name can be taken for the end of one.
    return digest(names[0] if len(names) == 1 else "".join(f"{len(name)}:{name}" for name in names))


def digest(name: str) -> str:
    """Return ``x`` and the FNV-1a of *name* in hex, as Topograph does: without leading zeros."""
    value = _FNV_OFFSET
    for byte in name.encode(errors="surrogatepass"):  # half a character is a name, too
        value = (value ^ byte) * _FNV_PRIME % (1 << 64)
    return f"x{value:x}"


def _names(path: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_TIERS:
        raise InputError(f"{path}: not a list of up to {MAX_TIERS}", "begin with the nearest level")
    return tuple(_text(f"{path}[{position}]", name) for position, name in enumerate(value))


def _text(path: str, value: Any) -> str:
    # YAML reads a rack's number as a number; a truth value is a slip (`no`, `on`).
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise InputError(
            f"{path}: not a name: {_SHORT.repr(value)}", "write a text, in quotes if in doubt"
        )
    return str(value)


ENTRIES: tuple[Label, ...] = (
    Label(
        key="gpu.topology/tier-<n>",
        meaning="Place of the node at level `<n>` of the network, shared with other nodes; 0 is "
        "the nearest switch. Only on request.",
        source="labels of the cloud or of Topograph, or a file",
        cardinality="one per switch of the level",
        is_ruled=True,
        value=lambda snapshot, rules: (
            {f"{DEFAULT_PREFIX}{name}": value for name, value in rules.levels.items()}
            if snapshot.gpus
            else {}
        ),
    ),
)
