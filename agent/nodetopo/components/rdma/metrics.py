"""Metrics of the HCAs: their ports and their health."""

from collections.abc import Callable

from nodetopo.components.rdma.reading import HcaReading
from nodetopo.kernel.http.family import (
    Family,
    MetricKind,
    Per,
    Samples,
    Section,
)
from nodetopo.model.hca import ACTIVE, Hca, HcaPort
from nodetopo.model.snapshot import Snapshot

HAS_HCAS = "the node has HCAs"
HCAS_OFFERED = "HCAs are advertised"

PORT_STATES = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4, "ACTIVE_DEFER": 5}
"""Numbers of the kernel (include/rdma/ib_verbs.h, enum ib_port_state)."""

BYTES_PER_GBIT = 1e9 / 8

PORT_ERRORS = 6
"""Published counters of a port; the look at HCAs reads them."""


def _hcas(reading: HcaReading) -> tuple[Hca, ...]:
    return (reading.snapshot.hcas if reading.snapshot else None) or ()


def _each_port(value: Callable[[HcaPort], float | None]) -> Callable[[HcaReading], Samples]:
    """Return the samples of a family with the labels ``hca`` and ``port``."""

    def samples(reading: HcaReading) -> Samples:
        values = {
            (hca.name, str(port.number)): value(port)
            for hca in _hcas(reading)
            for port in hca.ports
        }
        return {labels: number for labels, number in values.items() if number is not None}

    return samples


FAMILIES: tuple[Family[HcaReading], ...] = (
    Family(
        name="hca_ports",
        section=Section.NODE,
        text="Ports of the RDMA adapter",
        labels=("hca",),
        per=Per.HCA,
        when=HAS_HCAS,
        samples=lambda reading: {(hca.name,): len(hca.ports) for hca in _hcas(reading)},
    ),
    Family(
        name="hca_ports_active",
        section=Section.NODE,
        text="Ports of the RDMA adapter in state ACTIVE",
        labels=("hca",),
        per=Per.HCA,
        when=HAS_HCAS,
        samples=lambda reading: {
            (hca.name,): sum(port.state == ACTIVE for port in hca.ports) for hca in _hcas(reading)
        },
    ),
    Family(
        name="hca_port_state",
        section=Section.NODE,
        text="State of the port: 1 DOWN, 2 INIT, 3 ARMED, 4 ACTIVE, 5 ACTIVE_DEFER",
        labels=("hca", "port"),
        per=Per.PORT,
        when="the driver gives the state",
        samples=_each_port(lambda port: PORT_STATES.get(port.state or "")),
    ),
    Family(
        name="hca_port_rate_bytes_per_second",
        section=Section.NODE,
        text="Rate of the port in one direction; ports that are down report a rate too",
        labels=("hca", "port"),
        per=Per.PORT,
        when="the driver gives the rate",
        samples=_each_port(
            lambda port: None if port.rate_gbps is None else port.rate_gbps * BYTES_PER_GBIT
        ),
    ),
    Family(
        name="hca_port_errors",
        section=Section.NODE,
        text="Error counters of the port, by name in sysfs, read once a minute",
        labels=("hca", "port", "counter"),
        kind=MetricKind.COUNTER,
        per=Per.PORT,
        most=PORT_ERRORS,
        when=f"{HCAS_OFFERED}, and the driver has the counter",
        samples=lambda reading: {
            (hca, str(port), counter): count
            for (hca, port), counts in reading.hca_counters.items()
            for counter, count in counts.items()
        },
    ),
    Family(
        name="hca_healthy",
        section=Section.NODE,
        text="Whether the RDMA adapter is healthy and therefore allocatable; `key` is the "
        "prefix of its device ids",
        labels=("hca", "key"),
        per=Per.HCA,
        when=HCAS_OFFERED,
        is_minimal=True,
        samples=lambda reading: {
            (health.name, key): float(health.is_healthy)
            for key, health in reading.hca_health.items()
        },
    ),
    Family(
        name="hca_health_info",
        section=Section.NODE,
        text="Why an RDMA adapter is not allocatable; healthy adapters have no sample",
        labels=("hca", "key", "reason"),
        per=Per.HCA,
        when="the RDMA adapter is unhealthy",
        is_minimal=True,
        samples=lambda reading: {
            (health.name, key, health.reason): 1
            for key, health in reading.hca_health.items()
            if health.reason is not None
        },
    ),
)


def idle(snapshot: Snapshot | None) -> HcaReading:
    """Return the reading while no HCA is offered."""
    return HcaReading(snapshot=snapshot)
