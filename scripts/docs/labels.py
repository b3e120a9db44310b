"""The reference page of the labels, ``docs/labels.md``, made from the catalogue."""

from agent.labels.catalogue import CATALOGUE
from agent.labels.label import LabelRow

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
- a lost GPU, or a driver version in another form, silences GFD altogether; here it takes only
  the labels that it stands for;
- `nvidia.com/gpu.clique` waits until all GPUs of the node are registered with the fabric;
- `nvidia.com/vgpu.present` is also `false` without the right to read PCI config space, and
  absent from a node without GPUs;
- compute capability 13 is `rubin`, as GFD says from v0.20.0 on.

Of ours, `nvidia.com/nvlink.version` and `nvidia.com/nvswitch.present` are no labels of GFD's.

`docs/labels.md` is generated from `agent/labels/catalogue.py`.

| Label | Meaning | Source | Different values in a cluster |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page as Markdown, one row per entry of the catalogue."""
    return _INTRODUCTION + "".join(map(_row, CATALOGUE))


def _row(entry: LabelRow) -> str:
    return f"| `{entry.key}` | {entry.meaning} | {entry.source} | {entry.cardinality} |\n"
