"""The machine as designed: the reference for measurements."""

from msgspec.structs import replace

from nodetopo.model.hca import ACTIVE, HcaPort
from nodetopo.model.nvlink import P2pStatus, PeerAccess
from nodetopo.model.pci import PcieLink
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.bandwidth.expected import port_rate
from nodetopo.topology.wiring import has_switches, wired_gpus


def sound(snapshot: Snapshot) -> Snapshot:
    """Return the designed state of *snapshot*'s machine: the reference for measurements.

    Every PCIe link has its full width, every wired NVLink is active, every HCA port is active at
    the best rate among HCAs of its type, no bridge redirects, no peer access is denied. Limits of
    the design, such as a slot with fewer lanes, stay.
    """
    wired = wired_gpus(snapshot)
    is_switched = has_switches(snapshot)
    rates: dict[str | None, float] = {}
    for hca in snapshot.hcas or ():
        if (rate := port_rate(hca)) is not None:
            rates[hca.hca_type] = max(rate, rates.get(hca.hca_type, rate))
    return replace(
        snapshot,
        gpus=tuple(
            replace(
                gpu,
                pcie=_full(gpu.pcie),
                function=gpu.function and replace(gpu.function, link=_full(gpu.function.link)),
            )
            for gpu in snapshot.gpus
        ),
        nvlinks=snapshot.nvlinks
        and tuple(
            replace(link, is_active=True)
            if link.gpu in wired and (is_switched or link.peer is not None)
            else link
            for link in snapshot.nvlinks
        ),
        bridges=snapshot.bridges
        and tuple(
            replace(bridge, link=_full(bridge.link), acs_control=0) for bridge in snapshot.bridges
        ),
        hcas=snapshot.hcas
        and tuple(
            replace(
                hca,
                function=hca.function and replace(hca.function, link=_full(hca.function.link)),
                ports=tuple(_sound_port(port, rates.get(hca.hca_type)) for port in hca.ports),
            )
            for hca in snapshot.hcas
        ),
        pairs=tuple(
            replace(pair, forward=_allowed(pair.forward), backward=_allowed(pair.backward))
            for pair in snapshot.pairs
        ),
    )


def _sound_port(port: HcaPort, rate: float | None) -> HcaPort:
    state = None if port.state is None else ACTIVE
    return replace(port, state=state, rate_gbps=rate if rate is not None else port.rate_gbps)


def _full(link: PcieLink | None) -> PcieLink | None:
    if link is None or link.max_width is None or link.width is None:
        return link
    return replace(link, width=max(link.width, link.max_width))


_CURABLE = (
    P2pStatus.CHIPSET_NOT_SUPPORTED,
    P2pStatus.TOPOLOGY_NOT_SUPPORTED,
    P2pStatus.DISABLED_BY_REGKEY,
)
"""Refusals of a setting or of firmware; that a GPU cannot is how it is built."""


def _allowed(access: PeerAccess | None) -> PeerAccess | None:
    if access is None:
        return None

    def allowed(status: P2pStatus | None) -> P2pStatus | None:
        return P2pStatus.OK if status in _CURABLE else status

    return PeerAccess(
        read=allowed(access.read), write=allowed(access.write), nvlink=allowed(access.nvlink)
    )
