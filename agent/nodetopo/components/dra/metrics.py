"""Metrics of our DRA driver, and of the GPUs that others publish."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from nodetopo.kernel.http import family
from nodetopo.kernel.http.family import MetricKind, Reading, Section, declared

_metric = partial(family.metric, Section.CLAIMS)
_ours = partial(_metric, default=None, when="our DRA driver is on")
_counted = partial(_ours, kind=MetricKind.COUNTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraReading(Reading):
    """The devices that DRA drivers give out on the node, and the state of ours if it is on."""

    dra_gpus: Mapping[str, int] = _metric(
        "GPUs of the node that a DRA driver publishes",
        "driver",
        most=2,  # drivers that publish GPUs of one node: normally one, two only by mistake
        when="a DRA driver publishes GPUs of the node",
    )
    dra_registered: bool | None = _ours("Whether our DRA driver is registered with the kubelet")
    dra_claims_prepared: int | None = _ours("ResourceClaims that our DRA driver has prepared")
    dra_gpus_claimed: int | None = _ours("GPUs of prepared ResourceClaims, whole or in part")
    dra_slice_writes: int | None = _counted(
        "Writes and deletions of our DRA driver's ResourceSlices"
    )
    dra_slice_errors: int | None = _counted("Failed writes of ResourceSlices")
    dra_gpus_published_twice: int | None = _ours(
        "GPUs that another DRA driver publishes too; our devices of these GPUs accept no new claims"
    )
    dra_fields_dropped: frozenset[str] | None = _ours(
        "1 for each field of our ResourceSlices that the API server drops",
        "field",
        most=4,  # those behind feature gates: counters, consumed counters, taints and lists
        when="the API server drops fields of our ResourceSlices",
    )


FAMILIES, idle = declared(DraReading), DraReading
