"""The reference page of the labels, ``docs/labels.md``, made from the catalogue."""

from agent.labels.catalogue import CATALOGUE
from agent.labels.label import LabelEntry

_INTRODUCTION = """\
# Labels

Published on the Node by server-side apply under the field manager `nodetopo`, written only
when a value changes, removed only when a complete scan shows that the fact is gone: never
at shutdown, and never because NVML did not answer.

Values are cut to what Kubernetes accepts: characters outside `A-Z a-z 0-9 - _ .` are
dropped, spaces become hyphens, 63 characters at most, a letter or digit at both ends. A
label of which nothing is left, or whose fact is unknown, is absent; the others stay.

The `nvidia.com/gpu.*`, `cuda.*`, `mig.*` and `mps.*` labels carry the values that GPU
Feature Discovery gives whole GPUs, so selectors written for it keep working. Different on
purpose:

- no `nvidia.com/gfd.timestamp`: a label that changes at each start wakes every scheduler;
- no label with an empty value: a driver version of two parts has no revision;
- one deterministic model on nodes with several, where GFD's answer varies;
- values with characters at the edges that the API server refuses are trimmed.

`docs/labels.md` is generated from `agent/labels/catalogue.py`.

| Label | Meaning | Source | Different values in a cluster |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page as Markdown, one row per entry of the catalogue."""
    return _INTRODUCTION + "".join(map(_row, CATALOGUE))


def _row(entry: LabelEntry) -> str:
    return f"| `{entry.key}` | {entry.meaning} | {entry.source} | {entry.cardinality} |\n"
