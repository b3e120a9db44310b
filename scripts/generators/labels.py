"""The reference page of the labels, ``docs/reference/labels.md``, made from the catalogue."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from nodetopo.components.labels.catalogue import CATALOGUE
from nodetopo.components.labels.label import Label
from nodetopo.components.labels.levels import MAX_TIERS, PLATFORMS, Platform
from nodetopo.components.labels.topology_ok import REASON_KEY

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = _REFERENCE / "labels.md"
TOPOLOGY_PAGE = _REFERENCE / "topology-labels.md"

# The page on the topology family, ``docs/reference/topology-labels.md``, with its platforms.

_USES = (
    (
        "keep a group of pods inside one NVLink domain",
        "the levels `nvlink-domain`, `nvlink-partition`, `kubernetes.io/hostname`",
    ),
    (
        "combine racks (NVL72) and single machines (HGX) in one Topology",
        "the same: for a single machine, the domain is the machine",
    ),
    (
        "choose machines by how their GPUs are joined",
        "`interconnect`, `nvlink-gpus`, `nvlink-domain-size`, `nvlink-links`",
    ),
    (
        "choose machines by their network",
        "`rdma`, `rdma-nics`, `rdma-rate`, `rdma-rails`, `gpu-nic`, `gdr`, `data-direct`",
    ),
    (
        "choose machines on which pods can share HCAs without a network plugin",
        "`rdma-netns`",
    ),
    (
        "choose machines that align pods",
        "`tm-policy`, `tm-scope`, `cpu-manager`, `memory-manager`",
    ),
    (
        "choose machines of one build, or find a machine that differs",
        "`shape`, `gpus-per-numa`, `rdma-nics-per-numa`",
    ),
    (
        "keep jobs off machines with a lost part",
        f"`topology-ok`; the annotation `{REASON_KEY}` names the part",
    ),
)
"""Goals, and the labels that serve them."""


_FAMILY = """\
# Topology labels

This page explains how to use the labels below `gpu.topology/`; [labels.md](labels.md) describes
each label. You can change the prefix. All values are static, without counters or times, and do not
change with pods: a scheduler such as Kueue rebuilds its tree each time a label of a node changes.

This page is generated from `agent/nodetopo/components/labels/levels.py`.

"""


_LEVELS = """
Schedulers ignore a node that lacks any label of their levels. A machine whose GPUs are connected
by PCIe only, or are all in MIG mode, has no `nvlink-domain`. Give such nodes a Topology without
that level.

## Not published

- `topology.kubernetes.io/numa-node`: the prefix is reserved for Kubernetes, and a node has
  several NUMA nodes, so one value would be wrong for most of its GPUs. `gpus-per-numa` shows their
  distribution; a NodeResourceTopology object shows the NUMA nodes that still have room for a pod.
- `node-role.kubernetes.io/mig-enabled`: this prefix is reserved too. KAI, which reads the label,
  also recognizes a MIG node by its `nvidia.com/mig-*` resources. `gpu.topology/mig-enabled` has
  the same information for users.

## Tiers

On request, a node also gets `gpu.topology/tier-0`, `tier-1` and so on. They name the node's places
in the network, with the same keys in every cloud; 0 is the nearest switch. nodetopo derives them
from the labels that the cloud or Topograph has put on the Node. It uses the platform that you
select by name, or else the first of these platforms whose tier 0 exists:

"""


_TIERS = f"""
Region and zone keep their well-known labels. A tier whose label is missing or empty is left
out; the other tiers keep their numbers. On Amazon's instance types of four layers, tier 0 is layer
4; on the others, it is layer 3. Do not mix them in one Topology.

A name becomes a label value unchanged, unless it has more than 63 characters, a dot, or a character
that a label cannot hold. The value is then `x` and the FNV-1a digest of the name; for long names,
Topograph writes the same. Dots are excluded because KAI joins the values of all levels with dots,
and would confuse `r.1` in `a` with `1` in `a.r`.

If no platform matches, a file can define up to {MAX_TIERS} tiers, by your labels or for each node,
tier 0 first:

```yaml
labels: [example.com/rack, example.com/block]
nodes:              # a node that is listed here needs no labels
  gpu-17: [r2, b3]
qualified: true     # the default: rack r2 of block b3 becomes b3__r2
```

A tier in the file takes precedence over the same tier of a platform; the platform's other tiers
stay. The file must name labels of other programs, not tiers.

Most schedulers treat equal values as one place, so rack `r2` of two blocks would be one rack. If
your names are unique, `qualified: false` keeps them unchanged.
"""


def topology_page() -> str:
    """Return the page as Markdown."""
    uses = (f"| {purpose} | {labels} |\n" for purpose, labels in _USES)
    return "".join(
        (
            _FAMILY,
            "| To | use |\n| --- | --- |\n",
            *uses,
            _LEVELS,
            "| Platform | Labels, tier 0 first | Written by |\n| --- | --- | --- |\n",
            *map(_topology_row, PLATFORMS),
            _TIERS,
        ),
    )


def _topology_row(platform: Platform) -> str:
    keys = platform.keys
    if len(keys) == MAX_TIERS:  # Topograph has no greatest tier
        keys = (keys[0], keys[1], "…")
    named = ", ".join(key if key == "…" else f"`{key}`" for key in keys)
    return f"| `{platform.name}` | {named} | {platform.origin} |\n"


_INTRODUCTION = """\
# Labels

nodetopo publishes these labels on the Node by server-side apply with the field manager `nodetopo`.
It writes them only when a value changes. It removes a label only when a complete scan shows that
the device or feature is gone: never at shutdown, and never because NVML did not answer.

nodetopo adapts values to the rules of Kubernetes: it drops characters outside `A-Z a-z 0-9 - _ .`,
turns spaces into hyphens, and keeps at most 63 characters, with a letter or digit at both ends. A
label is absent if its value is unknown or if no valid character remains; the other labels stay.

The `nvidia.com/gpu.*`, `cuda.*`, `mig.*`, `mig-<profile>.*`, `mps.*` and `vgpu.*` labels carry
the values of GPU Feature Discovery (GFD) v0.19.0, so selectors written for GFD keep working. The
lab runs both programs on the same machines and compares them key by key. nodetopo differs
deliberately:

- It writes no `nvidia.com/gfd.timestamp`, because a label that changes at each start wakes every
  scheduler.
- It writes no label with an empty value: a driver version of two parts has no revision, and
  `MIG-INVALID` no sharing strategy.
- On nodes with several GPU models, it selects one model deterministically; GFD's answer varies
  from run to run.
- It corrects values that the API server rejects: it trims invalid characters at the ends, and
  shortens values to 63 characters by cutting the model before `MIG-<profile>` and `SHARED`.
- A lost GPU, or a driver version in another form, makes GFD write no labels. nodetopo keeps a label
  that depends on values of a lost GPU unchanged, omits it on a first start, and writes the others.
- `nvidia.com/gpu.clique` waits until all GPUs of the node are registered with the fabric. It is
  absent if one GPU reports a cluster UUID of zeros while others report a UUID.
- `nvidia.com/gpu.clique` is also absent if NVLink cannot lead to other nodes, regardless of the
  cluster in the driver's answer: some H100 boards name one. A GPU can be part of a multi-node
  fabric only if it has a chip-to-chip link to its CPU (NVLink-C2C), or the name of a superchip
  (GH200, GB200, GB300). A later product without either needs a new release, or a label by GFD or
  NVIDIA's DRA driver (`publish-clique`).
- `nvidia.com/vgpu.present` is `true` if NVML reports a virtual GPU, even if PCI config space lacks
  NVIDIA's capability. It is also `false` without the right to read that space, and absent on a node
  without GPUs.
- Compute capability 13 is `rubin`, as in GFD from v0.20.0 on.

GFD does not have the labels `nvidia.com/nvlink.version` and `nvidia.com/nvswitch.present`.

`docs/reference/labels.md` is generated from `agent/nodetopo/components/labels/catalogue.py`.

| Label | Meaning | Source | Different values in a cluster |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page as Markdown, one row per entry of the catalogue."""
    return _INTRODUCTION + "".join(map(_row, CATALOGUE))


def _row(entry: Label) -> str:
    return f"| `{entry.key}` | {entry.meaning} | {entry.source} | {entry.cardinality} |\n"


def made() -> Mapping[Path, str]:
    """Return both pages."""
    return {PAGE: page(), TOPOLOGY_PAGE: topology_page()}


def owned() -> Iterable[Path]:
    """Return the files of this generator."""
    return (PAGE, TOPOLOGY_PAGE)
