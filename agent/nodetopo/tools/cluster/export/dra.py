"""Claims of Dynamic Resource Allocation that land where placement would put them.

NVIDIA's driver publishes neither NVLinks nor an order of its GPUs, but their PCI addresses, PCIe
roots and, from v0.5 on, NUMA nodes. So the knowledge of a machine goes into the claim: a request
with ``firstAvailable``, whose alternatives name groups of GPUs
(:mod:`nodetopo.tools.cluster.export.alternatives`).

Source: k8s.io/api v0.36 ``resource/v1`` types.go. :mod:`nodetopo.tools.cluster.export.claim` makes
the spec of a claim, :mod:`nodetopo.tools.cluster.export.offered` knows the attributes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodetopo.errors import InputError, NothingFound
from nodetopo.model.dra import NVIDIA_DRIVER
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.export.claim import Claims
from nodetopo.tools.cluster.export.claim_options import ClaimOptions
from nodetopo.tools.cluster.export.claim_remarks import shape_remarks, use_remarks, written
from nodetopo.tools.cluster.export.offered import Drivers
from nodetopo.tools.cluster.export.record import Exported, Remark, check_name
from nodetopo.tools.cluster.export.shapes import Shape, shape_of
from nodetopo.tools.cluster.node import folded

__all__ = ["ClaimOptions", "claim_spec", "export_claims"]

API_VERSION = "resource.k8s.io/v1"
"""Served since Kubernetes 1.34."""


def claim_spec(snapshot: Snapshot, size: int, *, driver: str = NVIDIA_DRIVER) -> Mapping[str, Any]:
    """Return the ``spec`` of a ResourceClaim for *size* GPUs of a machine such as *snapshot*.

    Its request has alternatives, the best first, the last any *size* GPUs; without a choice it is a
    plain one.
    """
    shape = shape_of(snapshot, Drivers(gpus=driver))
    return Claims(snapshot, shape.offered, ClaimOptions(driver=driver)).spec(size)


def export_claims(shapes: Sequence[Shape], options: ClaimOptions) -> Exported:
    """Return the objects by which pods claim GPUs of *shapes*, a template for each size.

    Raises:
        NothingFound: *shapes* is empty.
        InputError: no machine has enough GPUs for a size, or no claim has room for the CPUs.
    """
    check_name(options.name)
    if not shapes:
        cure = "check that its driver runs, or name a machine with --machine or --snapshot"
        raise NothingFound(f"no node publishes GPUs of the driver {options.driver}", cure)
    objects = list(_classes(options))
    remarks: dict[Remark, None] = {}
    largest = 0
    for shape in shapes:
        claims = Claims(shape.snapshot, shape.offered, options)
        largest = max(largest, claims.most)
        sizes = options.sizes or _usual_sizes(claims.most)
        specs = {size: claims.spec(size) for size in sizes if size <= claims.most}
        objects += [_template(shape, size, spec, options) for size, spec in specs.items()]
        remarks |= dict.fromkeys(shape_remarks(shape, claims, specs, options))
    if too_many := [size for size in options.sizes if not 1 <= size <= largest]:
        raise InputError(f"no claim for {too_many[0]} GPUs", f"ask for 1 to {largest}")
    return Exported(objects=tuple(objects), remarks=(*remarks, *use_remarks(options)))


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
    others = "-nics" if options.nic_driver is not None else ""
    others += "-cpus" if options.cpu_driver is not None else ""
    place = {} if options.namespace is None else {"namespace": options.namespace}
    annotations = {f"{options.prefix}shape": shape.title}
    if shape.selector:
        annotations[f"{options.prefix}node-selector"] = written(shape.selector)
    elif shape.nodes:
        annotations[f"{options.prefix}nodes"] = folded(shape.nodes)
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": f"{options.name}-{shape.name}-{size}{others}",
            **place,
            "annotations": annotations,
        },
        "spec": {"spec": spec},
    }
