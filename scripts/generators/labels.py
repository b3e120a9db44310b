"""The reference page of the labels, ``docs/reference/labels.md``, made from the catalogue."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from nodetopo.components.labels.catalogue import CATALOGUE
from nodetopo.components.labels.label import LabelRow
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
        "have racks (NVL72) and single machines (HGX) in one Topology",
        "the same: on a machine of its own the domain ends at the machine",
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
        "choose machines on which pods may share HCAs without a network plugin",
        "`rdma-netns`",
    ),
    (
        "choose machines where pods are aligned",
        "`tm-policy`, `tm-scope`, `cpu-manager`, `memory-manager`",
    ),
    (
        "have machines of one build only, or find the odd one out",
        "`shape`, `gpus-per-numa`, `rdma-nics-per-numa`",
    ),
    (
        "keep jobs off machines that lost a part",
        f"`topology-ok`; the annotation `{REASON_KEY}` says which",
    ),
)
"""Goals, and the labels that serve them."""


_FAMILY = """\
# Topology labels

What each label of `gpu.topology/` says is in [labels.md](labels.md); this page says what they
are for. The prefix can be changed. All values are static: no counters, no times, nothing that
changes with a pod, because a scheduler such as Kueue rebuilds its tree whenever a label of a
node changes.

This page is generated from `agent/nodetopo/components/labels/levels.py`.

"""


_LEVELS = """
Schedulers drop a node that lacks any label of their levels. A machine whose GPUs are joined by
PCIe alone, or are all in MIG mode, has no `nvlink-domain`: give such nodes a Topology without
that level.

## Not published

- `topology.kubernetes.io/numa-node`: the prefix is reserved for Kubernetes, and a node has
  several NUMA nodes, so one value would be wrong for most of its GPUs. `gpus-per-numa` says how
  they are spread; which NUMA node can still take a pod is the business of a
  NodeResourceTopology object.
- `node-role.kubernetes.io/mig-enabled`: reserved as well. KAI, which reads it, also knows a MIG
  node by its `nvidia.com/mig-*` resources; for people there is `gpu.topology/mig-enabled`.

## Tiers

On request a node also gets `gpu.topology/tier-0`, `tier-1` and so on: the places around it in
the network, 0 the nearest switch, under one name in every cloud. They come from the labels that
the cloud or Topograph has put on the Node. The first of these platforms whose tier 0 is there
counts, or the one that is asked for by name:

"""


_TIERS = f"""
Region and zone keep their well-known labels. A tier whose label is missing or empty is left
out, the others keep their numbers. On Amazon's instance types of four layers tier 0 is layer 4,
on the others layer 3: do not mix them under one Topology.

A name becomes a value as it is, unless it has over 63 characters, a dot, or a character that a
label cannot hold: then it is `x` and the FNV-1a digest of the name, which for long names is what
Topograph writes. Dots are out because KAI joins the values of all levels with them, and would
take `r.1` in `a` for `1` in `a.r`.

Where no platform fits, a file says it, by labels of your own or node by node, tier 0 first, up
to {MAX_TIERS} tiers:

```yaml
labels: [example.com/rack, example.com/block]
nodes:              # a node that is named here needs no labels
  gpu-17: [r2, b3]
qualified: true     # the default: rack r2 of block b3 becomes b3__r2
```

What the file says of a tier counts before what a platform says; the platform's other tiers stay.
Tiers are not made of tiers: the file names labels of other programs.

Most schedulers take a value for the same place wherever they meet it, so rack `r2` of two
blocks would be one rack; `qualified: false` leaves the names alone where they are unique.
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

Published on the Node by server-side apply under the field manager `nodetopo`, written only
when a value changes, removed only when a complete scan shows that the fact is gone: never
at shutdown, and never because NVML did not answer.

Values are cut to what Kubernetes accepts: characters outside `A-Z a-z 0-9 - _ .` are
dropped, spaces become hyphens, 63 characters at most, a letter or digit at both ends. A
label of which nothing is left, or whose fact is unknown, is absent; the others stay.

The `nvidia.com/gpu.*`, `cuda.*`, `mig.*`, `mig-<profile>.*`, `mps.*` and `vgpu.*` labels carry
the values of GPU Feature Discovery v0.19.0, so selectors written for it keep working. The lab
runs both on the same machines and compares them key by key. Different on purpose:

- no `nvidia.com/gfd.timestamp`: a label that changes at each start wakes every scheduler;
- no label with an empty value: a driver version of two parts has no revision, and
  `MIG-INVALID` no sharing strategy;
- one deterministic model on nodes with several, where GFD's answer varies from run to run;
- values that the API server refuses are made valid: characters at the edges are trimmed, and
  more than 63 are cut, the model before `MIG-<profile>` and `SHARED`;
- a lost GPU, or a driver version in another form, silences GFD altogether; here a label that
  depends on what a lost GPU did not say stays as it is, is absent on a first start, and the others
  are written;
- `nvidia.com/gpu.clique` waits until all GPUs of the node are registered with the fabric, and is
  absent where one of them reports a cluster UUID of zeros beside others that have one;
- `nvidia.com/gpu.clique` is also absent where NVLink cannot lead to other nodes, whatever cluster
  the driver names: H100 boards have been seen to name one. Only GPUs with a chip-to-chip link to
  their CPU (NVLink-C2C), or whose name is that of a superchip (GH200, GB200, GB300), can be part of
  a multi-node fabric. A later product without either needs a new release, or a label by GFD or
  NVIDIA's DRA driver (`publish-clique`);
- `nvidia.com/vgpu.present` is `true` where NVML says that a GPU is a virtual one, even if PCI
  config space lacks NVIDIA's capability; it is `false` also without the right to read that space,
  and absent from a node without GPUs;
- compute capability 13 is `rubin`, as GFD says from v0.20.0 on.

Of ours, `nvidia.com/nvlink.version` and `nvidia.com/nvswitch.present` are no labels of GFD's.

`docs/reference/labels.md` is generated from `agent/nodetopo/components/labels/catalogue.py`.

| Label | Meaning | Source | Different values in a cluster |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page as Markdown, one row per entry of the catalogue."""
    return _INTRODUCTION + "".join(map(_row, CATALOGUE))


def _row(entry: LabelRow) -> str:
    return f"| `{entry.key}` | {entry.meaning} | {entry.source} | {entry.cardinality} |\n"


def made() -> Mapping[Path, str]:
    """Return both pages."""
    return {PAGE: page(), TOPOLOGY_PAGE: topology_page()}


def owned() -> Iterable[Path]:
    """Return the files of this generator."""
    return (PAGE, TOPOLOGY_PAGE)
