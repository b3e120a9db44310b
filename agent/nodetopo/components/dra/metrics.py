"""Metrics of our DRA driver, and of the GPUs that others publish."""

from collections.abc import Callable

from nodetopo.components.dra.reading import DraReading, DraState
from nodetopo.kernel.http.family import Family, MetricKind, Samples, Section, by_name, single
from nodetopo.model.snapshot import Snapshot

MOST_DRA_DRIVERS = 2
"""Drivers that publish GPUs of one node: normally one, two only by mistake."""

MOST_DROPPED_FIELDS = 4
"""Fields of slices behind feature gates: counters, consumed counters, taints and lists."""

DRA_SEEN = "a DRA driver publishes GPUs of the node"
DRA_ON = "our DRA driver is on"
FIELDS_DROPPED = "the API server drops fields of our ResourceSlices"


def _dra(reading: DraReading, value: Callable[[DraState], float]) -> Samples:
    """Return the one sample of a family of our driver; none if it is off."""
    return {} if reading.dra is None else single(value(reading.dra))


FAMILIES: tuple[Family[DraReading], ...] = (
    Family(
        name="dra_gpus",
        section=Section.CLAIMS,
        text="GPUs of the node that a DRA driver publishes",
        labels=("driver",),
        most=MOST_DRA_DRIVERS,
        when=DRA_SEEN,
        samples=lambda reading: by_name(reading.dra_gpus),
    ),
    Family(
        name="dra_registered",
        section=Section.CLAIMS,
        text="Whether our DRA driver is registered with the kubelet",
        when=DRA_ON,
        samples=lambda reading: _dra(reading, lambda dra: int(dra.is_registered)),
    ),
    Family(
        name="dra_claims_prepared",
        section=Section.CLAIMS,
        text="ResourceClaims that our DRA driver has prepared",
        when=DRA_ON,
        samples=lambda reading: _dra(reading, lambda dra: dra.claims),
    ),
    Family(
        name="dra_gpus_claimed",
        section=Section.CLAIMS,
        text="GPUs of prepared ResourceClaims, whole or in part",
        when=DRA_ON,
        samples=lambda reading: _dra(reading, lambda dra: dra.claimed_gpus),
    ),
    Family(
        name="dra_slice_writes",
        section=Section.CLAIMS,
        text="Writes and deletions of our DRA driver's ResourceSlices",
        kind=MetricKind.COUNTER,
        when=DRA_ON,
        samples=lambda reading: _dra(reading, lambda dra: dra.writes),
    ),
    Family(
        name="dra_slice_errors",
        section=Section.CLAIMS,
        text="Failed writes of ResourceSlices",
        kind=MetricKind.COUNTER,
        when=DRA_ON,
        samples=lambda reading: _dra(reading, lambda dra: dra.errors),
    ),
    Family(
        name="dra_gpus_published_twice",
        section=Section.CLAIMS,
        text="GPUs that another DRA driver publishes too; our devices of these GPUs accept no "
        "new claims",
        when=DRA_ON,
        samples=lambda reading: _dra(reading, lambda dra: dra.shared_gpus),
    ),
    Family(
        name="dra_fields_dropped",
        section=Section.CLAIMS,
        text="1 for each field of our ResourceSlices that the API server drops",
        labels=("field",),
        most=MOST_DROPPED_FIELDS,
        when=FIELDS_DROPPED,
        samples=lambda reading: by_name(
            {} if reading.dra is None else dict.fromkeys(sorted(reading.dra.dropped), 1)
        ),
    ),
)


def idle(_snapshot: Snapshot | None) -> DraReading:
    """Return the reading without an API server."""
    return DraReading()
