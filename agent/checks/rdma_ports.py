"""The ports of adapters, as several rules go through them."""

from collections.abc import Iterator

from agent.checks.inputs import Inputs, missing_hcas, own_adapters, unknown_of
from agent.model.hca import Hca, HcaPort, LinkLayer
from agent.model.snapshot import Snapshot

ACTIVE = "ACTIVE"
"""The word of sysfs ``state`` for a port that carries traffic (ib_verbs.h ``ib_port_state``)."""

NamedPort = tuple[str, Hca, HcaPort]
"""A port with its adapter, and with the name that a finding gives it."""


def active_ports(snapshot: Snapshot) -> Iterator[NamedPort]:
    """Yield the ports that carry traffic of adapters that are no parts of others."""
    for hca in own_adapters(snapshot):
        for port in hca.ports:
            if port.state == ACTIVE:
                yield f"{hca.name} port {port.number}", hca, port


def roce_ports(snapshot: Snapshot) -> Iterator[NamedPort]:
    """Yield those of the active ports that speak Ethernet and serve jobs on the node itself.

    A physical function whose virtual functions or subfunctions serve the jobs needs no address;
    and ports slower than the node's fastest are there for storage and management.
    """
    divided = {hca.parent for hca in snapshot.hcas or () if hca.parent is not None}
    fastest = max((port.rate_gbps or 0 for _, _, port in active_ports(snapshot)), default=0)
    for name, hca, port in active_ports(snapshot):
        is_slower = port.rate_gbps is not None and port.rate_gbps < fastest
        if port.layer is LinkLayer.ETHERNET and hca.pci not in divided and not is_slower:
            yield name, hca, port


def missing_states(snapshot: Snapshot) -> Inputs:
    """Return the HCAs of whose ports it is not known whether they are active."""
    silent = (
        hca.name
        for hca in own_adapters(snapshot)
        if not hca.ports or any(port.state is None for port in hca.ports)
    )
    return missing_hcas(snapshot) + unknown_of("port states", silent)


def missing_layers(snapshot: Snapshot) -> Inputs:
    """Return the ports of which it is not known what they speak, and :func:`missing_states`.

    Adapters that are neither InfiniBand nor Ethernet (EFA) leave the file's word unknown too;
    their driver's name tells them.
    """
    silent = (
        name for name, hca, port in active_ports(snapshot) if port.layer is None and not is_efa(hca)
    )
    return missing_states(snapshot) + unknown_of("link layer", silent)


def is_efa(hca: Hca) -> bool:
    """Return whether *hca* is Amazon's Elastic Fabric Adapter, which has ways of its own."""
    return hca.function is not None and hca.function.driver == "efa"


def no_roce(snapshot: Snapshot) -> str | None:
    """Return why rules about RoCE say nothing here."""
    if missing_layers(snapshot) or any(roce_ports(snapshot)):
        return None
    return "no active RoCE port that serves jobs on this node itself"
