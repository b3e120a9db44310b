"""What the metrics of the HCAs are made from; it loads no library of metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetopo.model.hca_health import HcaHealthView
from nodetopo.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaReading:
    """The HCAs of the node, and the offered ones.

    Attributes:
        snapshot: ``None`` before the first scan has ended.
        hca_health: by key; empty while no HCAs are offered, or their health is not watched.
        hca_counters: (name of the HCA, number of the port) → counter → count.
    """

    snapshot: Snapshot | None
    hca_health: HcaHealthView = field(default_factory=dict)
    hca_counters: Mapping[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)
