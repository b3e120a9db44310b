"""Machines of a cluster, from ResourceSlices."""

from msgspec.structs import replace

from nodetopo.machines import bundled
from nodetopo.model.dra import PublishedDevice
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.dra import devices_of
from nodetopo.tools.cluster.export.offered import Drivers
from nodetopo.tools.cluster.export.shapes import Shape, shapes_of
from nodetopo.tools.cluster.node import ClusterNode
from tests.tools.cluster.export.dra_machines import slices

PREFIX = "gpu.topology/"
KNOWN = tuple(map(bundled.machine, bundled.names()))

DGX, PCIE = bundled.machine("dgx-1v"), bundled.machine("l40s-pcie-4")


def shifted(snapshot: Snapshot) -> Snapshot:
    """Return a machine of the same kind whose GPUs have other addresses."""
    gpus = tuple(
        replace(gpu, pci=replace(gpu.pci, bus=gpu.pci.bus + 1)) for gpu in snapshot.gpus if gpu.pci
    )
    return replace(snapshot, gpus=gpus)


def published(**machines: Snapshot) -> dict[str, tuple[PublishedDevice, ...]]:
    """Return what each node publishes; the order of the GPUs is another on each."""
    return {
        name: devices_of(slices(snapshot, name, seed=seed, nics=True))
        for seed, (name, snapshot) in enumerate(machines.items())
    }


def labelled(**products: str) -> tuple[ClusterNode, ...]:
    key = "nvidia.com/gpu.product"
    return tuple(ClusterNode(name=name, labels={key: text}) for name, text in products.items())


def found(
    devices: dict[str, tuple[PublishedDevice, ...]],
    nodes: tuple[ClusterNode, ...] = (),
    nic_driver: str | None = None,
) -> tuple[Shape, ...]:
    return shapes_of(devices, nodes, KNOWN, drivers=Drivers(nics=nic_driver), prefix=PREFIX)


def test_nodes_with_equal_gpus_are_one_shape_in_whatever_order_they_publish() -> None:
    v100, l40s = found(published(a=DGX, b=PCIE, c=DGX))
    assert (v100.nodes, l40s.nodes) == (("a", "c"), ("b",))
    assert (v100.name, l40s.name) == ("8x-tesla-v100-sxm2-32gb", "4x-l40s")
    assert v100.title == "8x Tesla V100-SXM2-32GB"


def test_a_bundled_machine_with_the_same_gpus_lends_its_nvlinks() -> None:
    (shape,) = found(published(a=DGX))
    assert shape.has_nvlinks
    assert shape.snapshot.nvlinks == DGX.nvlinks


def test_without_one_places_are_known_and_nvlinks_are_not() -> None:
    (shape,) = found(published(a=shifted(DGX)))
    assert not shape.has_nvlinks
    assert [gpu.numa_node for gpu in shape.snapshot.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    roots = {gpu.path.root for gpu in shape.snapshot.gpus if gpu.path}
    assert roots == {"pci0000:00", "pci0000:80"}


def test_layouts_of_one_product_have_names_of_their_own() -> None:
    first, second = found(published(a=DGX, b=DGX, c=shifted(DGX)))
    assert (first.nodes, second.nodes) == (("a", "b"), ("c",))
    assert first.name != second.name
    assert first.name.startswith("8x-tesla-v100-sxm2-32gb-")


def test_layouts_whose_products_differ_by_signs_alone_have_names_of_their_own() -> None:
    def of(product: str) -> Snapshot:
        return replace(PCIE, gpus=tuple(replace(gpu, product=product) for gpu in PCIE.gpus))

    long = "NVIDIA " + "Very " * 20
    products = ["NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM4 80GB", "A100 SXM4 80GB", f"{long}1"]
    nodes = {f"n{at}": of(product) for at, product in enumerate([*products, f"{long}2"])}
    names = [shape.name for shape in found(published(**nodes))]
    assert len({*names}) == len(nodes)
    assert names == [shape.name for shape in found(published(**nodes))]


def test_a_label_that_only_these_nodes_have_is_their_selector() -> None:
    devices = published(a=DGX, b=PCIE, c=DGX)
    v100, l40s = found(devices, labelled(a="V100", b="L40S", c="V100"))
    assert v100.selector == {"nvidia.com/gpu.product": "V100"}
    assert l40s.selector == {"nvidia.com/gpu.product": "L40S"}


def test_no_selector_where_others_have_the_label_too_or_one_lacks_it() -> None:
    devices = published(a=DGX, b=PCIE, c=DGX)
    shapes = found(devices, labelled(a="GPU", b="GPU", c="GPU"))
    assert [shape.selector for shape in shapes] == [{}, {}]
    v100, _ = found(devices, labelled(a="V100", b="L40S"))
    assert v100.selector == {}


def test_nics_make_shapes_only_where_they_are_claimed() -> None:
    hgx = bundled.machine("hgx-h200")
    fewer = replace(hgx, hcas=(hgx.hcas or ())[:4])
    devices = published(a=hgx, b=fewer)
    assert len(found(devices)) == 1
    with_all, with_some = found(devices, nic_driver="dra.net")
    counts = {len(shape.snapshot.hcas or ()) for shape in (with_all, with_some)}
    assert counts == {len(hgx.hcas or ()), 4}
    assert with_all.name != with_some.name


def test_mig_devices_and_other_drivers_are_no_gpus() -> None:
    mig = PublishedDevice(
        driver="gpu.nvidia.com",
        pool="a",
        name="gpu-0-mig-1g5gb-0",
        attributes={
            "gpu.nvidia.com/type": "mig",
            "resource.kubernetes.io/pciBusID": "0000:07:00.0",
        },
    )
    assert found({"a": (mig,)}) == ()
    assert found({"a": published(a=DGX)["a"], "b": ()})[0].nodes == ("a",)
