"""The claims for one machine: requests for GPUs, and for NICs and CPUs near them.

GPUs are selected by PCI address, which has the same form in every driver release. NUMA nodes can be
numbers or lists (KEP-6072), and CEL that handles both came with lists. Nearness is expressed by
``matchAttribute``, over attributes that all devices of the shape have under one name.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.masks import positions
from nodetopo.errors import InputError
from nodetopo.model.dra import DRIVER, NUMA_NODE, PCI_BUS_ID, PCIE_ROOT, STANDARD, best_mark
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.export.alternatives import MOST, Alternative, Layout, plain, ranked
from nodetopo.tools.cluster.export.claim_options import PLAIN, SETS, ClaimOptions
from nodetopo.tools.cluster.export.offered import CPU_CAPACITY, NIC_NUMA_NODE, Offered

MOST_RESULTS = 32
"""Most devices of one claim (resource/v1 ``AllocationResultsMaxSize``)."""

REQUEST, NIC_REQUEST, CPU_REQUEST = "gpus", "nics", "cpus"
"""The names of the requests in our claims."""

MATCHES_LISTS = (1, 37)
"""The first release whose scheduler matches attributes that are lists."""

_CPU_IDS = (NUMA_NODE, "dra.cpu/numaNodeID", "dra.cpu/socketID")
"""Attributes that identify the CPU devices of a node, in order of preference."""


class _Way(Struct, frozen=True, kw_only=True):
    """One way to get the GPUs of a claim."""

    name: str
    request: Mapping[str, Any]  # without its name
    count: int  # number of GPUs
    match: str | None = None  # the attribute shared by its GPUs
    is_near: bool = True  # NICs and CPUs must be near its GPUs
    has_nics: bool = True  # whether the NICs must be
    among: int | None = None  # GPUs that it can get; None for sets of our driver


class Claims:
    """The claims for one machine."""

    def __init__(self, snapshot: Snapshot, offered: Offered, options: ClaimOptions) -> None:
        self._snapshot = snapshot
        self._offered = offered
        self._options = options
        self._matches_lists = options.release is not None and options.release >= MATCHES_LISTS
        is_vague = offered.has_lists and not self._matches_lists
        unmatched = {NUMA_NODE} if offered.has_wide_lists or is_vague else set()
        self._layout = layout = Layout(snapshot, offered.gpus - unmatched)
        is_matched = self._is_usable(NUMA_NODE, offered.nics, is_strict=self._is_strict)
        if options.nic_driver is not None and is_matched and not self.has_pairs:
            nodes = {hca.numa_node for hca in snapshot.hcas or ()}
            self._layout = layout = Layout(snapshot, offered.gpus - unmatched, nodes)
        count = layout.everyone.bit_count()
        if not count:
            cure = "name a source with PCI addresses: a snapshot, or ResourceSlices"
            raise InputError("no GPU with a PCI address to claim", cure)
        self.most = min(count, self._most_results())  # GPUs of the largest claim

    def _most_results(self) -> int:
        """Return the most GPUs that fit into a claim, with their accompanying devices."""
        options, cores = self._options, self._offered.cores
        has_nics = options.nic_driver is not None
        others = options.cpus if cores is not None and cores.is_individual else 0
        room = MOST_RESULTS - (1 if has_nics and not self.has_pairs else 0)
        most = room // (1 + others + (1 if has_nics and self.has_pairs else 0))
        if not most:
            cure = f"ask for fewer than {options.cpus} CPUs for each GPU"
            raise InputError(f"a claim takes {MOST_RESULTS} devices, CPUs among them", cure)
        return most

    @property
    def numa_sizes(self) -> tuple[int, ...]:
        """How many GPUs each NUMA node has; empty if unknown of all."""
        masks = self._layout.places.get(NUMA_NODE, ())
        return tuple(mask.bit_count() for mask in masks)

    @property
    def has_pairs(self) -> bool:
        """Whether each GPU can have a separate NIC below its PCIe root.

        The PCIe roots must indicate nearness, and both drivers must publish them.
        """
        nics = Counter(hca.path.root for hca in self._snapshot.hcas or () if hca.path is not None)
        roots = self._layout.shared.get(PCIE_ROOT, ())
        gpus = [(self._snapshot.gpus[positions(mask)[0]].path, mask.bit_count()) for mask in roots]
        return (
            self._has_true_roots
            and PCIE_ROOT in self._offered.nics
            and bool(gpus)
            and all(path and nics[path.root] >= count for path, count in gpus)
        )

    @property
    def _has_true_roots(self) -> bool:
        """Whether a NIC below the PCIe root of a GPU is near it.

        It is not with a Data Direct function, which has another root, or in a virtual machine,
        whose PCIe tree differs from the host's.
        """
        snapshot = self._snapshot
        is_virtual = snapshot.cpu is not None and snapshot.cpu.is_virtual
        return not snapshot.data_directs and not is_virtual

    def spec(self, size: int) -> Mapping[str, Any]:
        if not 1 <= size <= self.most:
            raise InputError(f"cannot claim {size} GPUs", f"this machine allows 1 to {self.most}")
        is_paired = self._options.nic_driver is not None and self.has_pairs
        if is_paired and self.partition(size) is None:
            return self._pairs(size)
        ways = tuple(self._ways(size))
        near = [(way, tuple(self._near(way))) for way in ways]
        follows = self._follows_cpus(size, near)
        gpus, cores = _alternatives(REQUEST, ways), tuple(self._cpus(size))
        is_with_nics = self._options.nic_driver is not None
        nics = (self._nics(follows_cpus=follows),) if is_with_nics else ()
        # The allocator retries later requests first, so requests that others follow come first.
        requests = (gpus, *cores, *nics) if follows else (gpus, *nics, *cores)
        constraints = [*_merged(near), *self._apart(size)]
        if follows:
            cpus = f"{CPU_REQUEST}/near" if self._has_ways_to_cpus else CPU_REQUEST
            constraints.append(_equal(NIC_NUMA_NODE, cpus, f"{NIC_REQUEST}/near"))
        return _devices(requests, constraints)

    # The GPUs.

    def _ways(self, size: int) -> Iterator[_Way]:
        if self._options.driver == DRIVER:
            yield from self._ways_to_sets(size)
            return
        partition = self.partition(size)
        if partition is not None:
            request, everyone = self._request(size), self._layout.everyone
            yield _Way(
                name="partition", request=request, count=size, match=partition, among=everyone
            )
            return
        is_plain = self._options.form == PLAIN
        found = (plain(self._layout, size),) if is_plain else ranked(self._layout, size)
        if PCI_BUS_ID not in self._offered.gpus:  # then none of them can be selected
            found = tuple(each for each in found if each.among == self._layout.everyone)
        last = self._way(found[-1], self._name(found[-1]))
        if is_plain:
            yield last
            return
        ways = [way for each in found[:-1] for way in self._split(each)]
        # GPUs of one place have near devices anywhere; the last way has no constraint.
        ways += (
            replace(way, name=way.name.replace(last.name, "near"))
            for way in self._split(found[-1])
            if any(self._near(way))
        )
        yield from ways[: MOST - 1]
        yield replace(last, is_near=False)

    def _split(self, each: Alternative) -> Iterator[_Way]:
        """Yield the way of *each*: first near NICs, then apart, where some of its places have none.

        Otherwise the NIC would be anywhere even while GPUs of a place with NICs are free.
        """
        way = self._way(each, self._name(each))
        attribute = None if self._options.nic_driver is None else self._nic_attribute(way)
        if attribute is None or self._has_all(way, attribute, self._nic_places(attribute)):
            yield way
            return
        yield replace(way, name=f"{way.name}-nic")
        yield replace(way, has_nics=False)

    def partition(self, size: int) -> str | None:
        """Return the attribute of partitions of *size* GPUs, where Fabric Manager has them.

        Only the GPUs of a partition can be activated together (dra-driver-nvidia-gpu main, August
        2026, ``FabricManagerPartitioning``).
        """
        name = f"{self._options.driver}/partition{size}"
        return name if size > 1 and name in self._offered.gpus else None

    def _way(self, each: Alternative, name: str) -> _Way:
        request = self._request(each.count, self._condition(each.among))
        return _Way(
            name=name, request=request, count=each.count, match=each.match, among=each.among
        )

    def _ways_to_sets(self, size: int) -> Iterator[_Way]:
        """Yield the ways to GPUs of our driver: a set, else the best single GPUs, else any."""
        singles = _Way(name="singles", request=self._request(size), count=size, is_near=False)
        condition = f'device.attributes["{DRIVER}"].gpus == {size}'
        request = {**self._request(1, condition), "deviceClassName": SETS}
        one = _Way(name=f"set-of-{size}", request=request, count=size, is_near=False)
        sets = self._offered.sets
        can_be_set = size > 1 and (sets is None or size in sets)
        if self._options.form == PLAIN:
            yield one if can_be_set else singles
            return
        mark = f'"{best_mark(size)}" in device.attributes["{DRIVER}"]'
        best = replace(singles, name=f"best-{size}", request=self._request(size, mark))
        ways = [one] if can_be_set else []
        is_set = can_be_set and sets is not None
        if not is_set and size < self._layout.everyone.bit_count():
            ways.append(best)
        for way in (*ways, singles):
            near = replace(way, name=f"{way.name}-near", is_near=True)
            if any(self._near(near)):
                yield near
            yield way

    # What comes with them.

    def _near(self, way: _Way) -> Iterator[tuple[str, str]]:
        """Yield (attribute, request) for the requests with devices near the GPUs of *way*."""
        if not way.is_near:
            return
        by = None if self._options.nic_driver is None else self._nic_attribute(way)
        if by is not None and way.has_nics:
            yield by, NIC_REQUEST
        if self._has_cpus_on_one_node(way, is_strict=self._is_strict):
            yield NUMA_NODE, f"{CPU_REQUEST}/near" if self._has_ways_to_cpus else CPU_REQUEST

    def _nic_attribute(self, way: _Way) -> str | None:
        """Return the attribute that expresses that a NIC is near the GPUs of *way*.

        If only some NUMA nodes of *way* have NICs, it gets GPUs of these.
        """
        for name in (NUMA_NODE, PCIE_ROOT):
            places = self._nic_places(name)
            is_true = name == NUMA_NODE or self._has_true_roots
            is_usable = self._is_usable(name, self._offered.nics, is_strict=self._is_strict)
            is_part = name == NUMA_NODE and not self._is_strict
            if is_true and is_usable and self._is_on_one(way, name, places, is_part=is_part):
                return name
        return None

    def _nic_places(self, name: str) -> "set[Any]":
        """Return the values of the attribute *name* that NICs have."""
        hcas = self._snapshot.hcas or ()
        if name == NUMA_NODE:
            return {hca.numa_node for hca in hcas}
        return {hca.path.root for hca in hcas if hca.path is not None}

    @property
    def _is_strict(self) -> bool:
        """Whether a claim has no fallback to another way."""
        return self._options.form == PLAIN

    def _is_usable(self, name: str, others: frozenset[str], *, is_strict: bool) -> bool:
        """Return whether GPUs and *others* can be matched by the attribute *name*.

        If support for lists in the scheduler is unknown, they are used if another way exists.
        """
        if name not in self._offered.gpus & others:
            return False
        if name != NUMA_NODE or not self._offered.has_lists or self._matches_lists:
            return True
        return self._options.release is None and not is_strict

    def _has_cpus_on_one_node(self, way: _Way, *, is_strict: bool) -> bool:
        """Return whether CPUs can be required on the NUMA node of the GPUs of *way*."""
        cores = self._offered.cores
        is_usable = self._is_usable(NUMA_NODE, self._offered.cpus, is_strict=is_strict)
        if cores is None or not is_usable:
            return False
        nodes = {*cores.by_node} or {gpu.numa_node for gpu in self._snapshot.gpus}
        return self.cpu_devices(way.count) == 1 and self._is_on_one(way, NUMA_NODE, nodes)

    def _is_on_one(
        self, way: _Way, name: str, others: "set[Any]", *, is_part: bool = False
    ) -> bool:
        """Return whether the GPUs of *way* have one value of the attribute *name*.

        It must be shared with *others*, devices of another kind; with *is_part*, one of the values
        that the way can lead to.
        """
        if way.among is None:  # any set: the constraint leaves those out that are on several places
            return any(mask.bit_count() >= way.count for mask in self._layout.places.get(name, ()))
        touched = self._touched(way, name)
        shared = [mask for mask in touched if self._place(mask, name) in others]
        is_shared = any((mask & way.among).bit_count() >= way.count for mask in shared)
        if not is_part or not is_shared:
            is_shared = bool(touched) and touched == shared
        is_on_one = len(touched) == 1 or way.count == 1 or way.match == name
        masks = self._layout.places.get(name, ())
        return is_shared and (is_on_one or self._is_by_root(way, masks))

    def _has_all(self, way: _Way, name: str, others: "set[Any]") -> bool:
        """Return whether *others* have all values of the attribute *name* that *way* can get."""
        return all(self._place(mask, name) in others for mask in self._touched(way, name))

    def _touched(self, way: _Way, name: str) -> list[int]:
        """Return the places by the attribute *name* that *way* can get GPUs of."""
        if way.among is None:
            return []
        return [mask for mask in self._layout.places.get(name, ()) if mask & way.among]

    def _is_by_root(self, way: _Way, masks: Sequence[int]) -> bool:
        """Return whether the GPUs of *way* share a PCIe root, and so one of *masks*."""
        roots = self._layout.places.get(PCIE_ROOT, ())
        within = all(any(root & mask == root for mask in masks) for root in roots)
        return way.match == PCIE_ROOT and within

    def _place(self, mask: int, name: str) -> int | str | None:
        gpu = self._snapshot.gpus[positions(mask)[0]]
        if name == NUMA_NODE:
            return gpu.numa_node
        return None if gpu.path is None else gpu.path.root

    def _follows_cpus(
        self, size: int, near: Sequence[tuple[_Way, Sequence[tuple[str, str]]]]
    ) -> bool:
        """Return whether a NIC is near the CPUs, which are near the GPUs.

        That works if NICs and GPUs have no common attribute, but CPUs have one with each:
        dra-driver-cpu publishes dranet's attribute alongside the standard one.
        """
        reached = {request.partition("/")[0] for _, found in near for _, request in found}
        return (
            self._options.nic_driver is not None
            and self._options.form != PLAIN
            and reached == {CPU_REQUEST}
            and self.cpu_devices(size) == 1
            and NIC_NUMA_NODE in self._offered.nics & self._offered.cpus
        )

    def _nics(self, *, follows_cpus: bool) -> dict[str, Any]:
        nic = {**self._request(1), "deviceClassName": self._options.nic_class}
        if follows_cpus:
            ways = [{"name": "near", **nic}, {"name": "any", **nic}]
            return {"name": NIC_REQUEST, "firstAvailable": ways}
        return {"name": NIC_REQUEST, "exactly": nic}

    @property
    def _has_ways_to_cpus(self) -> bool:
        """Whether individual CPU devices are near GPUs, or else anywhere.

        A constraint on GPUs and many CPUs would otherwise keep the CPUs together in every way.
        """
        cores = self._offered.cores
        is_paired = self._options.nic_driver is not None and self.has_pairs
        return (
            cores is not None
            and cores.is_individual
            and not is_paired
            and not self._is_strict
            and self._is_usable(NUMA_NODE, self._offered.cpus, is_strict=False)
        )

    def cpu_devices(self, size: int) -> int:
        """Return of how many places a claim for *size* GPUs takes its CPUs; 0 without CPUs.

        It is one where a NUMA node has as many GPUs and CPUs.
        """
        cores = self._offered.cores
        if cores is None:
            return 0
        total, sizes = self._options.cpus * size, self.numa_sizes
        spread = -(-size // max(sizes)) if sizes else 1
        if cores.places:
            has_nodes = None not in cores.by_node
            needed = -(-total // max(cores.largest, 1))
            spread = min(max(spread, needed) if has_nodes else needed, cores.places)
        return spread

    def _cpus(self, size: int) -> Iterator[dict[str, Any]]:
        """Yield the requests for CPUs: of devices that share them out, or of a device each."""
        cores = self._offered.cores
        if cores is None:
            return
        total = self._options.cpus * size
        request = {**self._request(1), "deviceClassName": self._options.cpu_driver}
        if cores.is_individual:
            request |= {"count": total}
            ways = [{"name": "near", **request}, {"name": "any", **request}]
            exactly = {"exactly": request}
            yield {
                "name": CPU_REQUEST,
                **({"firstAvailable": ways} if self._has_ways_to_cpus else exactly),
            }
            return
        names = self._cpu_names(size)
        for number, name in enumerate(names):
            share = (total + len(names) - 1 - number) // len(names)
            capacity = {"requests": {CPU_CAPACITY: str(share)}}
            yield {"name": name, "exactly": {**request, "capacity": capacity}}

    def _cpu_names(self, size: int) -> tuple[str, ...]:
        count = self.cpu_devices(size)
        return (CPU_REQUEST,) if count == 1 else tuple(f"{CPU_REQUEST}-{at}" for at in range(count))

    def _apart(self, size: int) -> Iterator[dict[str, Any]]:
        """Yield the constraint that keeps requests for CPUs on different devices."""
        cores = self._offered.cores
        name = next((attribute for attribute in _CPU_IDS if attribute in self._offered.cpus), None)
        if cores is not None and not cores.is_individual and self.cpu_devices(size) > 1 and name:
            yield {"requests": list(self._cpu_names(size)), "distinctAttribute": name}

    # A NIC for each GPU.

    def _pairs(self, size: int) -> Mapping[str, Any]:
        """Return the claim for *size* GPUs, each with a NIC below the same PCIe root.

        Each request is for one device, as attributes are matched between requests. Where the claim
        takes the whole node each GPU is named: a claim that cannot be met is then refused at once
        instead of after all orders of the GPUs were tried.
        """
        requests: list[dict[str, Any]] = []
        constraints: list[dict[str, Any]] = []
        is_whole = size == self._layout.everyone.bit_count() and PCI_BUS_ID in self._offered.gpus
        mates = self._mates(size, is_whole=is_whole)
        for number, at in enumerate(positions(self._layout.everyone)[:size]):
            gpu, nic = f"gpu-{number}", f"nic-{number}"
            request = self._request(1, self._condition(1 << at) if is_whole else None)
            if gpu in mates and not self._is_strict:
                ways = [{"name": "near", **request}, {"name": "any", **request}]
                requests.append({"name": gpu, "firstAvailable": ways})
            else:
                requests.append({"name": gpu, "exactly": request})
            of_nic = {**self._request(1), "deviceClassName": self._options.nic_class}
            requests.append({"name": nic, "exactly": of_nic})
            constraints.append(_equal(PCIE_ROOT, gpu, nic))
        for first, others in mates.items():
            if self._is_strict:
                constraints.append(_equal(NUMA_NODE, first, *others))
            else:
                constraints += (_equal(NUMA_NODE, f"{first}/near", other) for other in others)
        requests += self._cpus(size)
        return _devices(requests, [*constraints, *self._apart(size)])

    def _mates(self, size: int, *, is_whole: bool) -> Mapping[str, Sequence[str]]:
        """Return the requests that are on the NUMA node of another one, by that one.

        GPUs are together by as many as a NUMA node has, so that the claim spans few nodes. Only the
        first of them has alternatives: each other one matches the first alternative of it. So they
        are all on one node, or, where no node has as many free, anywhere. One constraint over all
        of them would bind the others to each other in every alternative.
        """
        has_nodes = NUMA_NODE in self._layout.shared and len(self.numa_sizes) > 1
        room = max(self.numa_sizes) if has_nodes else 1
        is_on_one = has_nodes and self.fits_numa_node(size)
        names = [f"gpu-{number}" for number in range(size)]
        groups: dict[str, Sequence[str]] = {}
        if is_on_one or (room > 1 and not is_whole and not self._is_strict):
            groups = {
                names[at]: names[at + 1 : at + room]
                for at in range(0, size, room)
                if names[at + 1 : at + room]
            }
        match = NUMA_NODE if is_on_one else None
        way = _Way(name="", request={}, count=size, match=match, among=self._layout.everyone)
        if self._has_cpus_on_one_node(way, is_strict=self._is_strict):
            groups = {names[0]: [*names[1:], CPU_REQUEST]}
        return groups

    def fits_numa_node(self, size: int) -> bool:
        """Return whether *size* GPUs, more than one, have room on one of several NUMA nodes."""
        return len(self.numa_sizes) > 1 and 1 < size <= max(self.numa_sizes)

    def _request(self, count: int, condition: str | None = None) -> dict[str, Any]:
        selectors = {} if condition is None else {"selectors": [{"cel": {"expression": condition}}]}
        return {
            "deviceClassName": self._options.gpu_class,
            **selectors,
            "allocationMode": "ExactCount",
            "count": count,
        }

    def _condition(self, among: int) -> str | None:
        """Return the CEL expression that selects *among*; ``None`` for all GPUs.

        A missing attribute is an error in CEL, which ends the allocation of the pod: hence the test
        for its presence.
        """
        is_all = among == self._layout.everyone and among.bit_count() == len(self._snapshot.gpus)
        if is_all or PCI_BUS_ID not in self._offered.gpus:
            return None
        addresses = [f'"{self._snapshot.gpus[at].pci}"' for at in positions(among)]
        these = f"in [{', '.join(addresses)}]" if addresses[1:] else f"== {addresses[0]}"
        domain = f'device.attributes["{STANDARD}"]'
        return f'cel.bind(dra, {domain}, "pciBusID" in dra && dra.pciBusID {these})'

    def _name(self, each: Alternative) -> str:
        """Return the name of an alternative, a DNS label, which the status of a claim shows."""
        match = () if each.match is None else (_MATCHES[each.match],)
        gpus = [self._snapshot.gpus[at] for at in positions(each.among)]
        if each.among == self._layout.everyone:
            return "-".join(match or ("any",))
        if each.among in self._layout.places.get(NUMA_NODE, ()):
            return "-".join((f"numa-node-{gpus[0].numa_node}", *match))
        return "-".join(("gpu", *(str(gpu.index) for gpu in gpus), *match))


_MATCHES = {NUMA_NODE: "one-numa-node", PCIE_ROOT: "one-pcie-root"}


def _alternatives(name: str, ways: Sequence[_Way]) -> dict[str, Any]:
    if len(ways) == 1:
        return {"name": name, "exactly": dict(ways[0].request)}
    return {"name": name, "firstAvailable": [{"name": way.name, **way.request} for way in ways]}


def _merged(
    near: Sequence[tuple[_Way, Sequence[tuple[str, str]]]],
) -> Iterator[dict[str, Any]]:
    """Yield the constraints of each way: on its GPUs, and on NICs and CPUs near them."""
    for way, found in near:
        path = REQUEST if len(near) == 1 else f"{REQUEST}/{way.name}"
        if way.match is not None and way.match not in {attribute for attribute, _ in found}:
            yield _equal(way.match, path)
        # One for each: a constraint over both would bind them to each other in every way.
        for attribute, request in found:
            yield _equal(attribute, path, request)


def _equal(attribute: str, *requests: str) -> dict[str, Any]:
    return {"requests": list(requests), "matchAttribute": attribute}


def _devices(
    requests: Sequence[Mapping[str, Any]], constraints: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    devices: dict[str, Any] = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = list(constraints)
    return {"devices": devices}
