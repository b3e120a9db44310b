"""Metrics of the HCAs: their ports and their health."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nodetopo.kernel.http.family import Per, Reading, Section, counter, declared, derived, metric
from nodetopo.model.hca import ACTIVE, Hca, HcaPort
from nodetopo.model.hca_health import HcaHealth

HAS_HCAS = "the node has HCAs"
HCAS_OFFERED = "HCAs are advertised"

PORT_STATES = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4, "ACTIVE_DEFER": 5}
"""Numbers of the kernel (include/rdma/ib_verbs.h, enum ib_port_state)."""

BYTES_PER_GBIT = 1e9 / 8

PORT_ERRORS = 6
"""Published counters of a port; the look at HCAs reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaReading(Reading):
    """The HCAs of the node, and the offered ones."""

    hca_counters: Mapping[tuple[str, int], Mapping[str, int]] = counter(
        Section.NODE,
        "Error counters of the port, by name in sysfs, read once a minute",
        "hca port counter",
        name="hca_port_errors",
        per=Per.PORT,
        most=PORT_ERRORS,
        when=f"{HCAS_OFFERED}, and the driver has the counter",
    )
    hca_health: Mapping[str, HcaHealth] = metric(
        Section.NODE,
        "Whether the RDMA adapter is healthy and therefore allocatable; `key` is the "
        "prefix of its device ids",
        "hca key",
        name="hca_healthy",
        of=lambda reading: {
            (health.name, key): health.is_healthy for key, health in reading.hca_health.items()
        },
        per=Per.HCA,
        when=HCAS_OFFERED,
        is_minimal=True,
    )

    def each(self, value: Callable[[Hca], Any]) -> Mapping[str, Any]:
        """Return the *value* of each HCA by name."""
        return {hca.name: value(hca) for hca in (self.snapshot and self.snapshot.hcas) or ()}

    def each_port(self, value: Callable[[HcaPort], Any]) -> Mapping[str, Any]:
        """Return the *value* of each port by HCA and number."""
        return self.each(lambda hca: {port.number: value(port) for port in hca.ports})


def _rate(port: HcaPort) -> float | None:
    return None if port.rate_gbps is None else port.rate_gbps * BYTES_PER_GBIT


idle = HcaReading
_ERRORS, _HEALTHY = declared(HcaReading)

FAMILIES = (
    derived(
        "hca_ports",
        Section.NODE,
        "Ports of the RDMA adapter",
        lambda it: it.each(lambda hca: len(hca.ports)),
        "hca",
        per=Per.HCA,
        when=HAS_HCAS,
    ),
    derived(
        "hca_ports_active",
        Section.NODE,
        "Ports of the RDMA adapter in state ACTIVE",
        lambda it: it.each(lambda hca: sum(port.state == ACTIVE for port in hca.ports)),
        "hca",
        per=Per.HCA,
        when=HAS_HCAS,
    ),
    derived(
        "hca_port_state",
        Section.NODE,
        "State of the port: 1 DOWN, 2 INIT, 3 ARMED, 4 ACTIVE, 5 ACTIVE_DEFER",
        lambda it: it.each_port(lambda port: PORT_STATES.get(port.state or "")),
        "hca port",
        per=Per.PORT,
        when="the driver gives the state",
    ),
    derived(
        "hca_port_rate_bytes_per_second",
        Section.NODE,
        "Rate of the port in one direction; ports that are down report a rate too",
        lambda it: it.each_port(_rate),
        "hca port",
        per=Per.PORT,
        when="the driver gives the rate",
    ),
    _ERRORS,
    _HEALTHY,
    derived(
        "hca_health_info",
        Section.NODE,
        "Why an RDMA adapter is not allocatable; healthy adapters have no sample",
        lambda it: {(health.name, key): health.reason for key, health in it.hca_health.items()},
        "hca key reason",
        per=Per.HCA,
        when="the RDMA adapter is unhealthy",
        is_minimal=True,
    ),
)
