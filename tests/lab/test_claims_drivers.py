"""Exported claims, by kube-scheduler's allocator, against what releases of DRA drivers publish."""

from collections.abc import Iterable, Iterator, Sequence

import pytest

from nodetopo.machines import bundled
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.dra import devices_of
from nodetopo.tools.cluster.export.dra import ClaimOptions, export_claims
from nodetopo.tools.cluster.export.shapes import Shape, shapes_of
from tests.lab.api import Object
from tests.lab.dra_allocator import DraAllocator
from tests.tools.cluster.export.drivers import (
    CPU_CLASS,
    DRANET,
    NVIDIA,
    NVIDIA_CLASS,
    Cpus,
    Dranet,
    Json,
    Mode,
    Nvidia,
    cpus,
    dranet,
    nvidia_gpus,
    our_classes,
    ours,
    places_of,
)

pytestmark = pytest.mark.lab

MACHINES = ("dgx-1v", "dgx-h100", "h100-vm-8", "gb200-nvl72", "hgx-a100-4")


@pytest.fixture(scope="module")
def allocator() -> Iterator[DraAllocator]:
    with DraAllocator() as found:
        yield found


def shape(machine: Snapshot, slices: Sequence[Json], options: ClaimOptions) -> Shape:
    """Return the shape of the node that publishes *slices*, beside the bundled machines."""
    (found,) = shapes_of(
        {"n": devices_of(slices)},
        (),
        map(bundled.machine, bundled.names()),
        drivers=options.drivers,
        prefix="gpu.topology/",
    )
    assert len(found.snapshot.gpus) == len(machine.gpus)
    return found


def exported(
    machine: Snapshot, slices: Sequence[Json], options: ClaimOptions
) -> tuple[list[Object], dict[int, Object]]:
    """Return the classes, and the spec of each claim by its number of GPUs."""
    objects = export_claims([shape(machine, slices, options)], options).objects
    classes = [dict(it) for it in objects if it["kind"] == "DeviceClass"]
    templates = [it for it in objects if it["kind"] == "ResourceClaimTemplate"]
    sizes = [
        int(it["metadata"]["name"].removesuffix("-cpus").removesuffix("-nics").rpartition("-")[2])
        for it in templates
    ]
    return classes, {size: it["spec"]["spec"] for size, it in zip(sizes, templates, strict=True)}


def filled(allocator: DraAllocator, spec: Object, most: int) -> list[list[str]]:
    """Return the devices of as many claims with *spec* as fit, at most *most*; none stays."""
    found = []
    for number in range(most):
        given = allocator.allocate(f"job-{number}", spec, "n")
        if given is None:
            break
        found.append([it.device for it in given])
    for number in range(len(found)):
        allocator.free(f"job-{number}")
    return found


def is_gpu(name: str) -> bool:
    return name.startswith("gpu-")


def scalar(releases: Iterable[str]) -> list[str]:
    return [it for it in releases if not it.endswith("lists")]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("gpus", scalar(NVIDIA))
@pytest.mark.parametrize("nics", scalar(DRANET))
@pytest.mark.parametrize("form", ["alternatives", "plain"])
def test_claims_of_gpus_and_nics_are_met_until_the_node_is_full(
    allocator: DraAllocator, machine: str, gpus: Nvidia, nics: Dranet, form: str
) -> None:
    snapshot = bundled.machine(machine)
    published = [nvidia_gpus(snapshot, "n", gpus, seed=3), dranet(snapshot, "n", nics)]
    classes, specs = exported(snapshot, published, ClaimOptions(nic_driver="dra.net", form=form))
    allocator.publish(published)
    allocator.set_classes([NVIDIA_CLASS, *classes])
    for size, spec in specs.items():
        found = filled(allocator, spec, 16)
        # Each claim takes a NIC, or one for each GPU.
        taken = len(found[0]) - size if found else 1
        fitting = min(len(snapshot.gpus) // size, len(snapshot.hcas or ()) // taken)
        assert len(found) == fitting or form == "plain", (size, found)
        assert found, size


@pytest.mark.parametrize("machine", ["dgx-h100", "h100-vm-8", "dgx-1v"])
@pytest.mark.parametrize("gpus", ["main"])
@pytest.mark.parametrize("nics", ["main"])
def test_a_nic_is_on_the_numa_node_of_the_gpus_where_it_can_be(
    allocator: DraAllocator, machine: str, gpus: Nvidia, nics: Dranet
) -> None:
    snapshot = bundled.machine(machine)
    published = [nvidia_gpus(snapshot, "n", gpus, seed=5), dranet(snapshot, "n", nics)]
    nodes = places_of(published)
    classes, specs = exported(snapshot, published, ClaimOptions(nic_driver="dra.net"))
    allocator.publish(published)
    allocator.set_classes([NVIDIA_CLASS, *classes])
    for size in (1, 2, 4):
        for taken in filled(allocator, specs[size], 1):
            assert len({nodes[it] for it in taken}) == 1, (size, taken)


@pytest.mark.parametrize("machine", ["dgx-h100", "h100-vm-8", "dgx-1v", "gb200-nvl72"])
@pytest.mark.parametrize("gpus", scalar(NVIDIA))
@pytest.mark.parametrize(
    "cores",
    [
        (release, mode)
        for release in ("v0.2.0", "main")
        for mode in ("numanode", "socket", "machine", "individual")
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("nics", [None, "v1.4.0", "main"])
def test_claims_of_gpus_nics_and_cpus_are_met(
    allocator: DraAllocator,
    machine: str,
    gpus: Nvidia,
    cores: tuple[Cpus, Mode],
    nics: Dranet | None,
) -> None:
    release, mode = cores
    snapshot = bundled.machine(machine)
    published = [nvidia_gpus(snapshot, "n", gpus, seed=4), cpus(snapshot, "n", release, mode)]
    published += [] if nics is None else [dranet(snapshot, "n", nics)]
    options = ClaimOptions(nic_driver=nics and "dra.net", cpu_driver="dra.cpu", cpus=2)
    nodes = places_of(published)
    classes, specs = exported(snapshot, published, options)
    allocator.publish(published)
    allocator.set_classes([NVIDIA_CLASS, CPU_CLASS, *classes])
    for size, spec in specs.items():
        found = filled(allocator, spec, 1)
        assert found, size
        (taken,) = found
        own_cpus = [it for it in taken if it.startswith("cpudev")]
        assert len(own_cpus) == (2 * size if mode == "individual" else len({*own_cpus}))
        has_nodes = release == "main" and gpus == "main" and mode in {"numanode", "individual"}
        if has_nodes and size <= 2:
            own = {nodes[it] for it in taken if is_gpu(it)}
            assert {nodes[it] for it in own_cpus} == own, (size, taken)
            # dranet v1.4.0 has no attribute of GPUs, but the CPUs have both.
            assert {nodes[it] for it in taken} == own, (size, taken)


@pytest.mark.parametrize("machine", ["dgx-h100", "h100-vm-8", "gb200-nvl72"])
@pytest.mark.parametrize("has_sets", [True, False])
@pytest.mark.parametrize("form", ["alternatives", "plain"])
def test_nics_and_cpus_are_near_sets_of_our_own_driver(
    allocator: DraAllocator, machine: str, form: str, *, has_sets: bool
) -> None:
    snapshot = bundled.machine(machine)
    others = [cpus(snapshot, "n", "main", "numanode")]
    if machine == "h100-vm-8":  # others get a NIC for each GPU, single ones
        others.append(dranet(snapshot, "n", "main"))
    published = [*ours(snapshot, "n", has_sets=has_sets), *others]
    nic_driver = "dra.net" if len(others) > 1 else None
    options = ClaimOptions(
        driver="nodetopo.io", nic_driver=nic_driver, cpu_driver="dra.cpu", cpus=4, form=form
    )
    nodes = places_of([it for it in published if it["spec"].get("devices")])
    classes, specs = exported(snapshot, published, options)
    allocator.publish(published)
    allocator.set_classes([*our_classes(), CPU_CLASS, *classes])
    for size, spec in specs.items():
        (taken,) = filled(allocator, spec, 1)
        if form == "alternatives" and size <= len(snapshot.gpus) // 2:
            assert len({nodes[it] for it in taken}) == 1, (size, taken)
