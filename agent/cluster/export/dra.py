"""Claims of Dynamic Resource Allocation that land where placement would put them.

NVIDIA's driver publishes neither NVLinks nor an order of its GPUs, but their PCI addresses, NUMA
nodes and PCIe roots. So the knowledge of a machine goes into the claim: a request with
``firstAvailable``, whose alternatives name groups of GPUs by those attributes
(:mod:`agent.cluster.export.alternatives`).

Sources: k8s.io/api v0.36 ``resource/v1`` types.go; dra-driver-nvidia-gpu
``cmd/gpu-kubelet-plugin/deviceinfo.go`` for the attributes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.allocation.masks import positions
from agent.cluster.export.alternatives import Alternative, Layout, plain, ranked
from agent.cluster.export.record import (
    CLAIM_FORMS,
    DEFAULT_NAME,
    Exported,
    Remark,
    check_name,
    hint,
    warning,
)
from agent.cluster.export.shapes import Shape
from agent.cluster.levels import named
from agent.cluster.node import folded
from agent.errors import InputError, NothingFound
from agent.labels.rules import DEFAULT_PREFIX
from agent.model.dra import DRIVER, NUMA_NODE, NVIDIA_DRIVER, PCIE_ROOT, STANDARD
from agent.model.snapshot import Snapshot

API_VERSION = "resource.k8s.io/v1"
"""Served since Kubernetes 1.34."""

MOST_RESULTS = 32
"""Devices that one claim may get (resource/v1 ``AllocationResultsMaxSize``)."""

REQUEST, NIC_REQUEST = "gpus", "nics"
"""The names of the requests in our claims."""

SINGLES, SETS = f"gpu.{DRIVER}", f"gpus.{DRIVER}"
"""The DeviceClasses of our own driver: a device of the second is a set of GPUs."""

SLOW_PAIRS = 6
"""GPUs with a NIC each from which on a claim that cannot be met holds the scheduler up: measured
with the allocator of Kubernetes 1.36.3, 0.6 s at 6 pairs and 3.6 s at 8."""

PLAIN = CLAIM_FORMS[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """What a person decides about claims.

    Attributes:
        name: begins the name of every object.
        prefix: of this program's own annotations.
        form: one of :data:`CLAIM_FORMS`.
        sizes: GPUs of a claim; empty for 1, 2, 4, 8 and so on, and the whole node.
        driver: whose GPUs are claimed.
        device_class: of the GPUs; ``None`` for what the driver installs.
        nic_driver: whose NICs each claim gets too; ``None`` for GPUs alone.
        namespace: of the templates; ``None`` for the client's own.
    """

    name: str = DEFAULT_NAME
    prefix: str = DEFAULT_PREFIX
    form: str = CLAIM_FORMS[0]
    sizes: tuple[int, ...] = ()
    driver: str = NVIDIA_DRIVER
    device_class: str | None = None
    nic_driver: str | None = None
    namespace: str | None = None

    @property
    def gpu_class(self) -> str:
        """The DeviceClass of single GPUs."""
        return self.device_class or (SINGLES if self.driver == DRIVER else self.driver)

    @property
    def nic_class(self) -> str:
        """The DeviceClass of RDMA NICs, which dranet leaves to the cluster's operator."""
        return f"{self.name}-nic"


def claim_spec(snapshot: Snapshot, size: int, *, driver: str = NVIDIA_DRIVER) -> Mapping[str, Any]:
    """Return the ``spec`` of a ResourceClaim for *size* GPUs of a machine such as *snapshot*.

    Its request has alternatives, the best first, the last any *size* GPUs; where there is no
    choice it is a plain one.

    Raises:
        InputError: no GPU of the machine can be claimed by its PCI address, or not as many.
    """
    return _Claims(snapshot, ClaimOptions(driver=driver)).spec(size)


def export_claims(shapes: Sequence[Shape], options: ClaimOptions) -> Exported:
    """Return the objects by which pods claim GPUs of *shapes*, a template for each size.

    Raises:
        NothingFound: there is no shape.
        InputError: no machine has as many GPUs as a size says.
    """
    check_name(options.name)
    if not shapes:
        cure = "check that its driver runs, or name a machine with --machine or --snapshot"
        raise NothingFound(f"no node publishes GPUs of the driver {options.driver}", cure)
    objects = list(_classes(options))
    remarks: dict[Remark, None] = {}
    largest = 0
    for shape in shapes:
        claims = _Claims(shape.snapshot, options)
        largest = max(largest, claims.most)
        sizes = options.sizes or _usual_sizes(claims.most)
        fitting = [size for size in sizes if size <= claims.most]
        objects += [_template(shape, size, claims.spec(size), options) for size in fitting]
        remarks |= dict.fromkeys(_shape_remarks(shape, claims, fitting, options))
    if too_many := [size for size in options.sizes if not 1 <= size <= largest]:
        raise InputError(f"no claim for {too_many[0]} GPUs", f"ask for 1 to {largest}")
    return Exported(objects=tuple(objects), remarks=(*remarks, *_use(options)))


def _usual_sizes(most: int) -> tuple[int, ...]:
    return (*(1 << power for power in range(most.bit_length()) if 1 << power < most), most)


def _classes(options: ClaimOptions) -> Iterator[Mapping[str, Any]]:
    """Yield the DeviceClasses that no driver installs."""
    if options.device_class is not None:
        expression = f'device.driver == "{options.driver}"'
        if options.driver == NVIDIA_DRIVER:  # MIG devices and GPUs for virtual machines are others
            expression += f' && device.attributes["{options.driver}"].type == "gpu"'
        yield _class(options.device_class, expression)
    if options.nic_driver is not None:
        domain = f'device.attributes["{options.nic_driver}"]'
        expression = f'device.driver == "{options.nic_driver}" && "rdma" in {domain}'
        yield _class(options.nic_class, f"{expression} && {domain}.rdma")


def _class(name: str, expression: str) -> Mapping[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _template(
    shape: Shape, size: int, spec: Mapping[str, Any], options: ClaimOptions
) -> Mapping[str, Any]:
    with_nics = "-nics" if options.nic_driver is not None else ""
    place = {} if options.namespace is None else {"namespace": options.namespace}
    annotations = {f"{options.prefix}shape": shape.title}
    if shape.selector:
        annotations[f"{options.prefix}node-selector"] = _written(shape.selector)
    elif shape.nodes:
        annotations[f"{options.prefix}nodes"] = folded(shape.nodes)
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": f"{options.name}-{shape.name}-{size}{with_nics}",
            **place,
            "annotations": annotations,
        },
        "spec": {"spec": spec},
    }


def _written(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


class _Claims:
    """The claims for one machine.

    Attributes:
        most: GPUs of the largest claim.
    """

    def __init__(self, snapshot: Snapshot, options: ClaimOptions) -> None:
        self._snapshot = snapshot
        self._options = options
        self._layout = layout = Layout(snapshot)
        count = layout.everyone.bit_count()
        if not count:
            cure = "name a source with PCI addresses: a snapshot, or ResourceSlices"
            raise InputError("no GPU with a PCI address to claim", cure)
        has_pairs = options.nic_driver is not None and self.has_pairs
        self.most = min(count, MOST_RESULTS // 2 if has_pairs else MOST_RESULTS)

    @property
    def numa_sizes(self) -> tuple[int, ...]:
        """How many GPUs each NUMA node has; empty where that is not known of all."""
        masks = self._layout.shared.get(NUMA_NODE, ())
        return tuple(mask.bit_count() for mask in masks)

    @property
    def has_pairs(self) -> bool:
        """Whether each GPU can have a NIC of its own below its PCIe root.

        Data takes another way where the NIC has a Data Direct function, whose root is another one,
        and the PCIe tree of a virtual machine is not that of the host.
        """
        snapshot = self._snapshot
        if snapshot.data_directs or (snapshot.cpu is not None and snapshot.cpu.is_virtual):
            return False
        nics = Counter(hca.path.root for hca in snapshot.hcas or () if hca.path is not None)
        roots = self._layout.shared.get(PCIE_ROOT, ())
        gpus = [(snapshot.gpus[positions(mask)[0]].path, mask.bit_count()) for mask in roots]
        return bool(gpus) and all(path and nics[path.root] >= count for path, count in gpus)

    def spec(self, size: int) -> Mapping[str, Any]:
        """Return the claim for *size* GPUs.

        Raises:
            InputError: the machine has fewer, or a claim takes no more.
        """
        if not 1 <= size <= self.most:
            raise InputError(f"cannot claim {size} GPUs", f"this machine allows 1 to {self.most}")
        if self._options.nic_driver is not None and self.has_pairs:
            return self._pairs(size)
        constraints: list[dict[str, Any]] = []
        if self._options.driver == DRIVER:
            requests = [self._of_sets(size)]
        else:
            is_plain = self._options.form == PLAIN
            alternatives = (plain(self._layout, size),) if is_plain else ranked(self._layout, size)
            requests = [self._of_alternatives(alternatives)]
            constraints += self._matches(alternatives)
        if self._options.nic_driver is not None:
            nic = {**self._request(1), "deviceClassName": self._options.nic_class}
            requests.append({"name": NIC_REQUEST, "exactly": nic})
        return _devices(requests, constraints)

    def _of_alternatives(self, alternatives: Sequence[Alternative]) -> dict[str, Any]:
        requests = [
            {"name": self._name(each), **self._request(each.count, self._condition(each.among))}
            for each in alternatives
        ]
        if len(requests) > 1:
            return {"name": REQUEST, "firstAvailable": requests}
        del requests[0]["name"]
        return {"name": REQUEST, "exactly": requests[0]}

    def _matches(self, alternatives: Sequence[Alternative]) -> Iterator[dict[str, Any]]:
        """Yield the constraints of each alternative: on its GPUs, and on a NIC near them."""
        has_nic = self._options.nic_driver is not None and self.has_near_nics
        nodes = self._layout.shared.get(NUMA_NODE, ())
        for each in alternatives:
            path = REQUEST if len(alternatives) == 1 else f"{REQUEST}/{self._name(each)}"
            is_on_one = each.count == 1 or any(each.among & node == each.among for node in nodes)
            if has_nic and (is_on_one or each.match == NUMA_NODE):
                yield _equal(NUMA_NODE, path, NIC_REQUEST)
                if each.match == NUMA_NODE:
                    continue
            if each.match is not None:
                yield _equal(each.match, path)

    def _of_sets(self, size: int) -> dict[str, Any]:
        """Return the request to our own driver, whose sets of GPUs are in the best order."""
        if size == 1:
            return {"name": REQUEST, "exactly": self._request(1)}
        condition = f'device.attributes["{DRIVER}"].gpus == {size}'
        one = {**self._request(1, condition), "deviceClassName": SETS}
        if self._options.form == PLAIN:
            return {"name": REQUEST, "exactly": one}
        singles = {"name": "singles", **self._request(size)}
        return {"name": REQUEST, "firstAvailable": [{"name": f"set-of-{size}", **one}, singles]}

    def _pairs(self, size: int) -> Mapping[str, Any]:
        """Return the claim for *size* GPUs, each with a NIC below the same PCIe root.

        One request stands for one device, as an attribute is matched between requests. Where the
        claim takes the whole node each GPU is named: a claim that cannot be met is then refused
        at once instead of after all orders of the GPUs were tried.
        """
        requests: list[dict[str, Any]] = []
        constraints: list[dict[str, Any]] = []
        is_whole = size == self._layout.everyone.bit_count()
        for number, at in enumerate(positions(self._layout.everyone)[:size]):
            condition = self._condition(1 << at) if is_whole else None
            gpu, nic = f"gpu-{number}", f"nic-{number}"
            requests.append({"name": gpu, "exactly": self._request(1, condition)})
            of_nic = {**self._request(1), "deviceClassName": self._options.nic_class}
            requests.append({"name": nic, "exactly": of_nic})
            constraints.append(_equal(PCIE_ROOT, gpu, nic))
        if self.fits_numa_node(size):
            names = [request["name"] for request in requests[::2]]
            constraints.append(_equal(NUMA_NODE, *names))
        return _devices(requests, constraints)

    def fits_numa_node(self, size: int) -> bool:
        """Return whether *size* GPUs, more than one, have room on one of several NUMA nodes."""
        return len(self.numa_sizes) > 1 and 1 < size <= max(self.numa_sizes)

    @property
    def has_near_nics(self) -> bool:
        """Whether each NUMA node with GPUs has a NIC."""
        nodes = {hca.numa_node for hca in self._snapshot.hcas or ()}
        masks = self._layout.shared.get(NUMA_NODE, ())
        own = {self._snapshot.gpus[positions(mask)[0]].numa_node for mask in masks}
        return bool(own) and own <= nodes

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

        An attribute that a device lacks is an error in CEL, which ends the allocation of the pod:
        hence the question whether it is there.
        """
        if among == self._layout.everyone and among.bit_count() == len(self._snapshot.gpus):
            return None
        gpus = [self._snapshot.gpus[at] for at in positions(among)]
        if among in self._layout.shared.get(NUMA_NODE, ()):
            name, condition = "numaNode", f"dra.numaNode == {gpus[0].numa_node}"
        else:
            addresses = [f'"{gpu.pci}"' for gpu in gpus]
            among_them = f"in [{', '.join(addresses)}]" if addresses[1:] else f"== {addresses[0]}"
            name, condition = "pciBusID", f"dra.pciBusID {among_them}"
        domain = f'device.attributes["{STANDARD}"]'
        return f'cel.bind(dra, {domain}, "{name}" in dra && {condition})'

    def _name(self, each: Alternative) -> str:
        """Return the name of an alternative, a DNS label, which the status of a claim shows."""
        match = () if each.match is None else (_MATCHES[each.match],)
        gpus = [self._snapshot.gpus[at] for at in positions(each.among)]
        if each.among == self._layout.everyone:
            return "-".join(match or ("any",))
        if each.among in self._layout.shared.get(NUMA_NODE, ()):
            return "-".join((f"numa-node-{gpus[0].numa_node}", *match))
        return "-".join(("gpu", *(str(gpu.index) for gpu in gpus), *match))


_MATCHES = {NUMA_NODE: "one-numa-node", PCIE_ROOT: "one-pcie-root"}


def _equal(attribute: str, *requests: str) -> dict[str, Any]:
    return {"requests": list(requests), "matchAttribute": attribute}


def _devices(
    requests: Sequence[Mapping[str, Any]], constraints: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    devices: dict[str, Any] = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = list(constraints)
    return {"devices": devices}


def _shape_remarks(
    shape: Shape, claims: _Claims, sizes: Sequence[int], options: ClaimOptions
) -> Iterator[Remark]:
    """Yield what to know of one shape and its claims."""
    if shape.selector:
        yield hint(f"{shape.title}: for nodes with {_written(shape.selector)}")
    elif shape.nodes:
        yield hint(f"{shape.title}: for {folded(shape.nodes)}")
    if not shape.has_nvlinks and options.driver != DRIVER and options.form != PLAIN:
        text = (
            f"{shape.title}: its NVLinks are not published and no bundled machine has this layout"
        )
        cure = "ranked by NUMA nodes and PCIe roots alone; `nodetopo capture` a node for --snapshot"
        yield hint(f"{text}: {cure}")
    if not claims.numa_sizes and options.driver != DRIVER and len(shape.snapshot.gpus) > 1:
        yield hint(f"{shape.title}: the NUMA nodes of its GPUs are not known")
    if options.form == PLAIN and options.driver != DRIVER:
        waiting = [str(size) for size in sizes if claims.fits_numa_node(size)]
        if waiting:
            text = f"{shape.title}: a claim for {named(waiting, ' or ')} GPUs waits"
            yield hint(f"{text} while no place of its constraint has as many free")
    if options.nic_driver is not None:
        yield from _nic_remarks(shape, claims, sizes, is_near=options.driver != DRIVER)


def _nic_remarks(
    shape: Shape, claims: _Claims, sizes: Sequence[int], *, is_near: bool
) -> Iterator[Remark]:
    """Yield what to know of the NICs; with *is_near* one of them follows its GPUs.

    A set of GPUs of our own driver comes first, on however many NUMA nodes it is.
    """
    snapshot = shape.snapshot
    if not snapshot.hcas:
        yield warning(f"{shape.title}: no RDMA NIC is known there: its claims wait for ever")
        return
    if claims.has_pairs:
        slow = [str(size) for size in sizes if SLOW_PAIRS <= size < claims.most]
        if slow:
            text = f"{shape.title}: a claim for {named(slow, ' or ')} pairs that cannot be met"
            yield warning(f"{text} holds the scheduler up (0.6 s at 6 pairs, 3.6 s at 8)")
        if any(claims.fits_numa_node(size) for size in sizes):
            text = f"{shape.title}: pairs wait for GPUs of one NUMA node where these have room"
            yield hint(f"{text}; delete the constraint on numaNode to have any")
        return
    if snapshot.data_directs:
        why = "its NICs reach GPUs by Data Direct functions, whose PCIe roots differ"
    elif snapshot.cpu is not None and snapshot.cpu.is_virtual:
        why = "the PCIe tree of a virtual machine is not that of its host"
    else:
        why = "not every GPU has a NIC below its PCIe root"
    where = "near them by NUMA node" if is_near and claims.has_near_nics else "wherever it is"
    yield hint(f"{shape.title}: {why}: each claim gets one NIC, {where}")


def _use(options: ClaimOptions) -> Iterator[Remark]:
    if options.form != PLAIN:
        yield hint("Kueue and KAI refuse alternatives: for them use --form plain")
    if options.driver == DRIVER and options.form == PLAIN:
        yield hint("KAI counts a set as one GPU")
    yield hint("pods name a template in spec.resourceClaims[].resourceClaimTemplateName")
