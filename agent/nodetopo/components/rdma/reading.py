"""What the metrics of the HCAs are made from; it loads no library of metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodetopo.model.hca_health import HcaHealthView
from nodetopo.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaReading:
    """The HCAs of the node, and the offered ones."""

    snapshot: Snapshot | None  # None before the first scan has ended
    # By key; empty while no HCAs are offered, or their health is not watched.
    hca_health: HcaHealthView = field(default_factory=dict)
    # (name of the HCA, port) → counter → count
    hca_counters: Mapping[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)
