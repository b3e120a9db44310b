"""Expected bandwidth of a pair of devices or a set of GPUs: a figure or a range, with its source.

All values are GB/s of 10^9 bytes in one direction. NCCL's own constants are not used here: they
order NCCL's choices and are below real bandwidths. A node's bandwidth table takes precedence.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations

from msgspec.structs import replace

from nodetopo.allocation.bandwidth import ring_bandwidth
from nodetopo.allocation.facts import NVLINK_OF_ARCHITECTURE, Facts, facts
from nodetopo.allocation.measured import Measured, Operation
from nodetopo.checks.inputs import virtual_machine
from nodetopo.drawing.devices import link_of
from nodetopo.drawing.hops import gb_per_s, hops, joined
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import ACTIVE, Hca
from nodetopo.model.nvlink import Closeness, P2pStatus, PeerAccess, PeerKind
from nodetopo.model.pci import PciAddress, PcieLink
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.bandwidth import published
from nodetopo.tools.bandwidth.expectation import (
    Expected,
    beyond_switch,
    of_figure,
    of_links,
    of_payload,
    unknown,
)
from nodetopo.tools.bandwidth.operation import ALGORITHMS, NVLS, RING, RINGS
from nodetopo.tools.bandwidth.switched import over_switches
from nodetopo.topology.affinity import hca_closeness
from nodetopo.topology.links import active_links, usable_nvlinks_between
from nodetopo.topology.matrix import pci_closeness, word
from nodetopo.topology.path import shared_hops

_SPEC = "payload by NVIDIA's and PCI-SIG's specifications"


class Model:
    """The expectations of one node.

    GPUs and HCAs can come from another snapshot of the node: index and name decide.

    Args:
        measured: its bandwidth table, by GPU index, which wins over everything else.
        operation: the operation that the table's sets were measured by.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        measured: Measured | None = None,
        table: str = "bandwidth table",
        operation: Operation = Operation.ALL_REDUCE,
    ) -> None:
        self._snapshot = snapshot
        self._measured = measured or Measured()
        self._table = table
        self._operation = operation
        self._gpus = {gpu.index: gpu for gpu in snapshot.gpus}
        self._hcas = {hca.name: hca for hca in snapshot.hcas or ()}

    def pair(self, a: Gpu, b: Gpu) -> Expected:
        """Return the bandwidth of copies from one GPU to another."""
        if (width := self._measured.pairs.get(frozenset((a.index, b.index)))) is not None:
            return self._of_table(width, self._table)
        a, b = self._gpus[a.index], self._gpus[b.index]
        for gpu in (a, b):
            if gpu.is_lost:
                return unknown(f"{gpu.name} is lost")
            if gpu.is_divided:
                return unknown(f"{gpu.name} is in MIG mode, in which GPUs have no peer access")
        low, high = sorted((a.index, b.index))
        links = self._links.get((low, high))
        if links is None:
            return unknown(f"the NVLinks between {a.name} and {b.name} are not known")
        if links:
            return self._over_nvlink(a, b, links)
        return self._over_pcie(a, b)

    def to_hca(self, gpu: Gpu, hca: Hca) -> Expected:
        """Return the RDMA bandwidth between the memory of *gpu* and the network behind *hca*."""
        gpu, hca = self._gpus[gpu.index], self._hcas[hca.name]
        if gpu.is_lost:
            return unknown(f"{gpu.name} is lost")
        wire = self.of_hca(hca)
        if wire.high is None:
            return wire
        position = (self._snapshot.hcas or ()).index(hca)
        distance = self._to_hcas.get((gpu.index, position))
        if distance is None:
            return unknown(f"the PCIe distance of {gpu.name} and {hca.name} is not known")
        is_coherent = gpu.c2c is not None and gpu.c2c.is_enabled
        if is_coherent and distance >= Closeness.PHB and _share_a_node(gpu, hca):
            base = wire.high
            return of_links(
                published.THROUGH_CPU,
                base,
                over=f"NVLink-C2C and the CPU to {hca.name}",
                behind=wire.assumes,
                source=f"{wire.source}; {published.DRANET}",
            )
        if (reason := self._invented(distance)) is not None:
            return unknown(reason)
        links = self._pcie_limit(gpu, hca)
        if isinstance(links, str):
            return unknown(links)
        pcie = published.PCIE * links
        base = min(pcie, wire.high)
        is_of_wire = pcie >= (wire.low or 0)
        over = f"PCIe {word(distance)} and {wire.over}"
        assumes = (f"{published.PCIE:g} of {links:g} GB/s on PCIe", *wire.assumes)
        source = wire.source or ""
        if distance < Closeness.PHB and self._is_redirected(gpu, hca):
            over += ", through the CPU because a bridge redirects peers (ACS)"
            distance = max(distance, Closeness.PHB)
        if distance >= Closeness.PHB:
            return beyond_switch(distance, base, over, assumes, source)
        gate = base * published.GATE_SHARE
        if is_of_wire and wire.gate is not None:
            gate = wire.gate
            if "H200" in (gpu.product or "") and port_rate(hca) == 400:
                gate = published.NIC_GATE_H200 / 8
        figure = of_figure(base, gate=gate, over=over, assumes=assumes, source=source)
        return replace(figure, low=min(base, wire.low or base))

    def of_hca(self, hca: Hca) -> Expected:
        """Return the bandwidth of one port of *hca* to and from near host memory."""
        hca = self._hcas[hca.name]
        rate = port_rate(hca)
        if hca.is_down:
            return unknown(f"no port of {hca.name} is active")
        if rate is None:
            return unknown(f"the rate of {hca.name} is not known")
        low, high = (share * rate / 8 for share in published.NIC)
        over = f"{rate:g} Gb/s"
        assumes = (f"{published.NIC.low:g} to {published.NIC.high:g} of the line rate of one port",)
        gate = published.NIC_GATES.get(rate, published.NIC_GATE_SHARE * rate) / 8
        link = self._link_to_cpu(hca)
        if link is not None and published.PCIE * link < low:
            low = high = published.PCIE * link
            over = f"PCIe at {link:g} GB/s"
            assumes = (f"{published.PCIE:g} of {link:g} GB/s on PCIe, which is less than the port",)
            gate = low * published.GATE_SHARE
        source = f"sysfs rate; NVIDIA/nccl-tests issue 267; gate: {published.AZURE}"
        figure = of_figure(high, gate=gate, over=over, assumes=assumes, source=source)
        return replace(figure, low=low)

    def to_host(self, gpu: Gpu) -> Expected:
        """Return the bandwidth of copies between *gpu* and near host memory, one way at a time."""
        gpu = self._gpus[gpu.index]
        if gpu.is_lost:
            return unknown(f"{gpu.name} is lost")
        c2c = gpu.c2c
        if c2c is not None and c2c.is_enabled:
            if not (c2c.links and c2c.speed_mbps):
                return unknown(f"the speed of {gpu.name}'s NVLink-C2C is not known")
            payload = c2c.links * c2c.speed_mbps / 1000
            return of_payload(
                published.C2C,
                payload,
                over="NVLink-C2C",
                source=f"NVML; {published.ML_ENGINEERING}",
            )
        if links := self._links_to_cpu(gpu):
            place = self._facts.indices.index(gpu.index)
            payload = links * self._facts.rates[place][place] / 1000
            over = f"{links} NVLink{'' if links == 1 else 's'} to the CPU"
            share = published.nvlink(gpu.architecture)
            return of_payload(share, payload, over=over, source=published.NVBANDWIDTH)
        link = self._link_to_cpu(gpu)
        if link is None:
            return unknown(f"the PCIe link of {gpu.name} is not reported")
        figure = published.PCIE * link
        gate = next(
            (
                gate
                for generation, gate in published.HOST_GATES.items()
                if link == gb_per_s(PcieLink(generation=generation, width=16))
            ),
            figure * published.GATE_SHARE,
        )
        return of_figure(
            figure,
            gate=gate,
            over=f"PCIe at {link:g} GB/s",
            assumes=(f"{published.PCIE:g} of it",),
            source=f"{published.NVBANDWIDTH}; gate: {published.AZURE}",
        )

    def of_set(
        self,
        gpus: Sequence[Gpu],
        operation: Operation = Operation.ALL_REDUCE,
        algorithms: frozenset[str] = ALGORITHMS,
    ) -> Expected:
        """Return the bus bandwidth of *operation* among *gpus*, as nccl-tests counts it.

        Over NVSwitches it is a share of a GPU's link bandwidth, which depends on the operation and
        on the *algorithms* that NCCL can choose from; otherwise the bandwidth of rings through the
        GPUs, with each hop at its pair's expectation.
        """
        indices = frozenset(gpu.index for gpu in gpus)
        width = self._measured.sets.get(indices)
        if width is not None and operation is self._operation:
            by = "" if operation is Operation.ALL_REDUCE else f", by {operation}"
            return self._of_table(width, f"{self._table}{by}")
        if len(indices) < 2:
            return unknown("one GPU alone has no bus bandwidth")
        members = sorted(map(self._facts.indices.index, indices))
        pairs: dict[tuple[int, int], Expected] = {}
        for a, b in combinations(members, 2):
            one = self.pair(self._snapshot.gpus[a], self._snapshot.gpus[b])
            if one.low is None:
                return one
            pairs[a, b] = one
        measured = frozenset(self._measured.pairs)
        is_measured = any(frozenset(one) <= indices for one in measured)
        if operation in RINGS and RING not in algorithms and NVLS not in algorithms:
            names = ", ".join(sorted(algorithms)) or "no algorithm that NCCL has"
            return unknown(f"nothing is published about {operation} by {names}")
        if self._facts.is_switched and not is_measured and self._all_linked(members):
            links = min(self._facts.links[a][b] for a, b in combinations(members, 2))
            payload = ring_bandwidth(self._facts, members) / 10
            of = [self._snapshot.gpus[member] for member in members]
            return over_switches(of, links, payload, operation, algorithms)
        if operation not in RINGS:
            return unknown(f"{operation} takes its own ways between the GPUs, not rings")
        return self._over_rings(members, pairs, is_measured=is_measured)

    @cached_property
    def _facts(self) -> Facts:
        return facts(self._snapshot)

    @cached_property
    def _links(self) -> Mapping[tuple[int, int], int | None]:
        return usable_nvlinks_between(self._snapshot)

    @cached_property
    def _distances(self) -> Mapping[frozenset[str], Closeness]:
        return pci_closeness(self._snapshot, of_gpus=True)

    @cached_property
    def _to_hcas(self) -> Mapping[tuple[int, int], Closeness]:
        return hca_closeness(self._snapshot)

    def _of_table(self, tenths: int, source: str) -> Expected:
        figure = tenths / 10
        return of_figure(
            figure,
            gate=figure * published.TABLE_GATE_SHARE,
            over="measured",
            assumes=("the node is as it was when it was measured",),
            source=source,
        )

    def _over_nvlink(self, a: Gpu, b: Gpu, links: int) -> Expected:
        for gpu in (a, b):
            if not self._is_rate_known(gpu):
                return unknown(f"the NVLink generation of {gpu.name} is not known")
        place = self._facts.indices.index
        rate = self._facts.rates[place(a.index)][place(b.index)] / 1000
        shared = of_payload(
            published.nvlink(a.architecture),
            links * rate,
            over=f"{links} NVLink{'' if links == 1 else 's'}",
            source=f"{published.NVBANDWIDTH}; {published.NCCL_1264}; {published.ML_ENGINEERING}",
        )
        gate = published.PAIR_GATES.get((a.architecture or "", links))
        if gate is None or rate != 25:
            return shared
        return replace(shared, gate=gate, source=f"{shared.source}; gate: {published.AZURE}")

    def _is_rate_known(self, gpu: Gpu) -> bool:
        links = active_links(gpu, self._snapshot)
        is_stated = bool(links) and all(link.version or link.speed_mbps for link in links)
        return is_stated or gpu.architecture in NVLINK_OF_ARCHITECTURE

    def _over_pcie(self, a: Gpu, b: Gpu) -> Expected:
        distance = self._distances.get(frozenset((a.name, b.name)))
        if distance is None:
            return unknown(f"the PCIe distance of {a.name} and {b.name} is not known")
        if (reason := self._invented(distance)) is not None:
            return unknown(reason)
        links = self._pcie_limit(a, b)
        if isinstance(links, str):
            return unknown(links)
        base = published.PCIE * links
        over = f"PCIe {word(distance)}"
        if self._is_denied(a, b):
            over += ", through host memory because the driver denies peer access"
            distance = max(distance, Closeness.PHB)
        elif distance < Closeness.PHB and self._is_redirected(a, b):
            over += ", through the CPU because a bridge redirects peers (ACS)"
            distance = max(distance, Closeness.PHB)
        assumes = (f"{published.PCIE:g} of {links:g} GB/s on the slowest link",)
        source = f"{_SPEC}; {published.NVBANDWIDTH}"
        if distance >= Closeness.PHB:
            return beyond_switch(distance, base, over, assumes, source)
        return of_figure(
            base,
            gate=base * published.GATE_SHARE,
            over=over,
            assumes=assumes,
            source=source,
        )

    def _invented(self, distance: Closeness) -> str | None:
        """Return why *distance* is meaningless: a hypervisor invents the guest's PCI tree."""
        if distance >= Closeness.PHB and self._is_virtual:
            return f"{word(distance)} says nothing in a virtual machine: its PCIe tree is invented"
        return None

    def _pcie_limit(self, a: Gpu, b: Gpu | Hca) -> float | str:
        """Return the GB/s of the slowest link on the way, or the reason for not knowing it."""
        directs = self._snapshot.data_directs or ()
        direct = next((candidate for candidate in directs if b.name in candidate.hcas), None)
        way = hops(self._snapshot, a, b if direct is None else direct)
        if way is None:
            return f"the place of {a.name} or {b.name} in the PCI tree is not known"
        known = {at: speed for at, hop in enumerate(way) if (speed := hop.gb_per_s) is not None}
        cpus = [at for at, hop in enumerate(way) if hop.root is not None or hop.numa is not None]
        for device, at in ((a, 0), (b, len(way) - 1)):
            if cpus and isinstance(device, Gpu) and self._is_past_pcie(device):
                # Its data takes the links to the CPU.
                known = {
                    n: v for n, v in known.items() if (n > cpus[0] if at == 0 else n < cpus[-1])
                }
            elif at not in known:
                return f"the PCIe link of {device.name} is not reported"
        if not known:
            return f"no figure is known of the way from {a.name} over the CPUs to {b.name}"
        return min(known.values())

    def _is_past_pcie(self, gpu: Gpu) -> bool:
        """Return whether *gpu* has links to its CPU that are no PCIe: Grace, POWER9."""
        is_c2c = gpu.c2c is not None and gpu.c2c.is_enabled
        return is_c2c or bool(self._links_to_cpu(gpu))

    def _links_to_cpu(self, gpu: Gpu) -> int:
        links = active_links(gpu, self._snapshot)
        return sum(1 for link in links if link.peer_kind is PeerKind.CPU)

    def _link_to_cpu(self, device: Gpu | Hca) -> float | None:
        """Return the GB/s of the slowest link between *device* and its CPU."""
        links = self._bridge_links
        above = device.path.hops[:-1] if device.path else ()
        own = gb_per_s(joined(link_of(device), links.get(above[-1]) if above else None))
        if own is None:
            return None
        others = [gb_per_s(links.get(address)) for address in above]
        return min([own, *(speed for speed in others if speed is not None)])

    def _is_denied(self, a: Gpu, b: Gpu) -> bool:
        return frozenset((a.name, b.name)) in self._denied

    @cached_property
    def _denied(self) -> frozenset[frozenset[str]]:
        """The pairs for which the driver refuses either direction."""
        return frozenset(
            frozenset((pair.a, pair.b))
            for pair in self._snapshot.pairs
            if _denies(pair.forward) or _denies(pair.backward)
        )

    def _is_redirected(self, a: Gpu, b: Gpu | Hca) -> bool:
        """Return whether a bridge below the common switch of the two redirects peers."""
        if a.path is None or b.path is None:
            return False
        shared = shared_hops(a.path, b.path)
        ports = (*a.path.hops[shared:-1], *b.path.hops[shared:-1])
        return not self._redirecting.isdisjoint(ports)

    @cached_property
    def _redirecting(self) -> frozenset[PciAddress]:
        bridges = self._snapshot.bridges or ()
        return frozenset(bridge.address for bridge in bridges if bridge.redirects_peers)

    @cached_property
    def _bridge_links(self) -> Mapping[PciAddress, PcieLink | None]:
        return {bridge.address: bridge.link for bridge in self._snapshot.bridges or ()}

    @cached_property
    def _is_virtual(self) -> bool:
        return virtual_machine(self._snapshot) is not None

    def _all_linked(self, members: Sequence[int]) -> bool:
        return all(self._facts.links[a][b] for a, b in combinations(members, 2))

    def _over_rings(
        self,
        members: Sequence[int],
        pairs: Mapping[tuple[int, int], Expected],
        *,
        is_measured: bool,
    ) -> Expected:
        linked = [at for at in pairs if self._facts.links[at[0]][at[1]]]

        def ring(of: Mapping[tuple[int, int], float], share: float) -> float:
            """Return the bandwidth of rings with hops of widths *of*, at *share* for NVLinks."""
            places = range(len(self._facts.indices))
            widths = [[0] * len(places) for _ in places]
            for (a, b), width in of.items():
                widths[a][b] = widths[b][a] = round(10 * width)
            rates = tuple(tuple(round(rate * share) for rate in row) for row in self._facts.rates)
            hops_ = tuple(map(tuple, widths))
            return ring_bandwidth(replace(self._facts, hops=hops_, rates=rates), members) / 10

        low_share, high_share = (1.0, 1.0) if is_measured else published.RING
        nvlink = published.nvlink(self._snapshot.gpus[members[0]].architecture)

        def scaled(at: tuple[int, int], value: float, share: float, of: float) -> float:
            return value * share / of if at in linked and not is_measured else value

        lows = {at: scaled(at, one.low or 0, low_share, nvlink.low) for at, one in pairs.items()}
        highs = {
            at: scaled(at, one.high or 0, high_share, nvlink.high) for at, one in pairs.items()
        }
        gates = {
            at: low * published.GATE_SHARE if at in linked else (pairs[at].gate or low)
            for at, low in lows.items()
        }
        low, high = ring(lows, low_share), ring(highs, high_share)
        gate = min(low, ring(gates, low_share * published.GATE_SHARE))
        is_wide = any(pair.is_wide for pair in pairs.values())
        default = None
        if is_wide:
            middles = {
                at: one.default if one.default is not None else highs[at]
                for at, one in pairs.items()
            }
            default = min(high, ring(middles, high_share))
            is_wide = low * published.WARN_SHARE < default < high
            default = default if is_wide else None
        sources = dict.fromkeys(
            name for pair in pairs.values() for name in (pair.source or "").split("; ")
        )
        narrowest = min(pairs, key=lambda at: lows[at])
        source = "; ".join(sources)
        bridged = None
        if len(members) == 2 and linked:
            architecture = self._snapshot.gpus[members[0]].architecture or ""
            links = self._facts.links[members[0]][members[1]]
            bridged = published.BRIDGE_GATES.get((architecture, links))
        if bridged is not None and not is_measured:
            gate, low = bridged, min(low, bridged * published.WARN_SHARE)
            source = f"{published.ML_ENGINEERING}; gate: {published.AZURE}"
        assumes: tuple[str, ...] = ("every hop as its pair",)
        if linked and not is_measured:
            share = f"{low_share:g} to {high_share:g}"
            assumes = (
                f"{share} of the payload of the NVLinks in a ring",
                "other hops as their pair",
            )
        return Expected(
            low=low,
            high=high,
            default=default,
            gate=gate,
            over=f"rings, narrowest over {pairs[narrowest].over}",
            assumes=assumes,
            source=source,
            is_wide=is_wide,
        )


def port_rate(hca: Hca) -> float | None:
    """Return the Gb/s of the fastest port of *hca*, among the active ones if any is."""
    active = [port.rate_gbps for port in hca.ports if port.state in (None, ACTIVE)]
    rates = [rate for rate in active or [port.rate_gbps for port in hca.ports] if rate]
    return max(rates, default=None)


def _share_a_node(gpu: Gpu, hca: Hca) -> bool:
    nodes = {gpu.numa_node, *(gpu.numa_affinity or ())} - {None}
    return hca.numa_node in nodes


def _denies(access: PeerAccess | None) -> bool:
    if access is None:
        return False
    return any(status not in (None, P2pStatus.OK) for status in (access.read, access.write))
