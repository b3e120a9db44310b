"""Labels of a node's GPUs where neither MIG nor sharing counts."""

import pytest
from msgspec import structs

from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Fabric, FabricState, Gpu
from nodetopo.model.pci import PciFunction
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.gfd_machines import H100, changed, gfd, ruled, shape, with_gpus

DRIVER_580 = {
    "cuda.driver-version.full": "580.95.05",
    "cuda.driver-version.major": "580",
    "cuda.driver-version.minor": "95",
    "cuda.driver-version.revision": "05",
    "cuda.driver.major": "580",
    "cuda.driver.minor": "95",
    "cuda.driver.rev": "05",
    "cuda.runtime-version.full": "13.0",
    "cuda.runtime-version.major": "13",
    "cuda.runtime-version.minor": "0",
    "cuda.runtime.major": "13",
    "cuda.runtime.minor": "0",
}
GOLDEN = {
    "dgx-h100": {
        **DRIVER_580,
        "gpu.compute.major": "9",
        "gpu.compute.minor": "0",
        "gpu.count": "8",
        "gpu.family": "hopper",
        "gpu.machine": "DGXH100",
        "gpu.memory": "81559",
        "gpu.mode": "compute",
        "gpu.product": "NVIDIA-H100-80GB-HBM3",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "mig.capable": "true",
        "mps.capable": "false",
        "nvlink.version": "4",
        "nvswitch.present": "true",
        "vgpu.present": "false",
    },
    "dgx-1v": {
        **DRIVER_580,
        "gpu.compute.major": "7",
        "gpu.compute.minor": "0",
        "gpu.count": "8",
        "gpu.family": "volta",
        "gpu.machine": "NVIDIA-DGX-1-with-V100",
        "gpu.memory": "32768",
        "gpu.mode": "compute",
        "gpu.product": "Tesla-V100-SXM2-32GB",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "mig.capable": "false",
        "mps.capable": "false",
        "nvlink.version": "2",
        "nvswitch.present": "false",
        "vgpu.present": "false",
    },
    "l40s-pcie-4": {
        **DRIVER_580,
        "gpu.compute.major": "8",
        "gpu.compute.minor": "9",
        "gpu.count": "4",
        "gpu.family": "ada-lovelace",
        "gpu.machine": "PowerEdge-R760xa",
        "gpu.memory": "46068",
        "gpu.mode": "compute",
        "gpu.product": "NVIDIA-L40S",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "mig.capable": "false",
        "mps.capable": "false",
        "nvswitch.present": "false",
        "vgpu.present": "false",
    },
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_bundled_machine_has_exactly_these_labels(name: str) -> None:
    assert gfd(machine(name)) == GOLDEN[name]


def test_of_several_models_the_most_frequent_is_described() -> None:
    node = machine("dgx-h100")
    other = structs.replace(node.gpus[0], product="NVIDIA A2", memory_mib=15356)
    mixed = structs.replace(node, gpus=(other, *node.gpus[1:]))
    assert changed(node, mixed) == {"gpu.count": "7"}


def test_of_equally_many_models_the_first_by_name_is_described() -> None:
    node = machine("l40s-pcie-4")
    other = [structs.replace(gpu, product="NVIDIA A2") for gpu in node.gpus[2:]]
    mixed = structs.replace(node, gpus=(*node.gpus[:2], *other))
    assert changed(node, mixed) == {
        "gpu.count": "2",
        "gpu.product": "NVIDIA-A2",
    }


def test_a_driver_version_of_two_parts_has_no_revision() -> None:
    node = machine("l40s-pcie-4")
    assert changed(node, structs.replace(node, driver_version="580.95")) == {
        "cuda.driver-version.full": "580.95",
        "cuda.driver-version.revision": None,
        "cuda.driver.rev": None,
    }


def test_a_driver_version_of_four_parts_is_not_taken_apart() -> None:
    node = machine("l40s-pcie-4")
    odd = structs.replace(node, driver_version="580.95.05.1")
    assert changed(node, odd) == {key: None for key in DRIVER_580 if key.startswith("cuda.driver")}


def test_a_value_of_which_nothing_is_left_takes_no_other_with_it() -> None:
    node = machine("l40s-pcie-4")
    odd = with_gpus(node, product="\N{SNOWMAN}")
    assert changed(node, odd) == {"gpu.product": None}


def test_a_machine_without_a_name_is_unknown() -> None:
    node = machine("l40s-pcie-4")
    nameless = structs.replace(node, product_name=None)
    assert changed(node, nameless) == {"gpu.machine": "unknown"}


def test_memory_that_could_not_be_read_is_left_out() -> None:
    node = machine("l40s-pcie-4")
    assert changed(node, with_gpus(node, memory_mib=None)) == {"gpu.memory": None}


def test_a_mig_mode_that_could_not_be_read_is_not_called_incapable() -> None:
    node = machine("l40s-pcie-4")
    issue = ProbeIssue(probe="nvml", subject="GPU0 nvmlDeviceGetMigMode", reason="UNKNOWN")
    unread = structs.replace(node, issues=(issue,))
    assert changed(node, unread) == {"mig.capable": None}


@pytest.mark.parametrize(
    ("classes", "mode"),
    [
        (("030000", "030000"), "graphics"),
        (("030200", "030200"), "compute"),
        (("030000", "030200"), "unknown"),
        (("030200", None), "unknown"),
        (("120000", "120000"), "unknown"),
    ],
)
def test_the_mode_is_what_all_gpus_agree_on(classes: tuple[str | None, ...], mode: str) -> None:
    node = machine("l40s-pcie-4")
    gpus = tuple(
        structs.replace(gpu, function=PciFunction(pci_class=pci_class))
        for gpu, pci_class in zip(node.gpus, classes, strict=False)
    )
    assert gfd(structs.replace(node, gpus=gpus))["gpu.mode"] == mode


@pytest.mark.parametrize(
    ("capability", "family"),
    [
        ((6, 1), "pascal"),
        ((7, 0), "volta"),
        ((7, 5), "turing"),
        ((8, 0), "ampere"),
        ((8, 6), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((10, 3), "blackwell"),
        ((12, 0), "blackwell"),
        ((99, 0), "undefined"),
        ((0, 0), None),
        (None, None),
    ],
)
def test_the_family_follows_the_compute_capability(
    capability: tuple[int, int] | None,
    family: str | None,
) -> None:
    node = with_gpus(machine("l40s-pcie-4"), compute_capability=capability)
    assert gfd(node).get("gpu.family") == family


def test_what_one_gpu_keeps_to_itself_is_told_by_another() -> None:
    silent = with_gpus(H100, 0, memory_mib=None, compute_capability=None)
    assert changed(H100, silent) == {}


def test_a_gpu_that_was_lost_before_it_told_anything_takes_only_what_it_decides_along() -> None:
    lost = with_gpus(
        H100,
        5,
        is_lost=True,
        product=None,
        memory_mib=None,
        compute_capability=None,
        mig=None,
        function=None,
        virtualization=None,
    )
    assert changed(H100, lost) == {
        "gpu.count": None,
        "gpu.mode": None,
        "nvlink.version": None,
        "vgpu.present": None,
    }


@pytest.mark.parametrize(
    ("models", "lost", "product"),
    [
        ("aaab", 1, "a"),
        ("aaaab", 2, "a"),
        ("aaab", 2, "a"),  # of equals the first by name
        ("bbba", 2, None),  # both may be a
        ("abb", 1, None),
        ("aa", 2, None),  # both may be of a third model, which comes before it
        ("aaa", 2, "a"),
        ("", 2, None),
    ],
)
def test_the_model_is_the_one_that_no_lost_gpu_can_outvote(
    models: str, lost: int, product: str | None
) -> None:
    heard = (Gpu(index=at, product=model) for at, model in enumerate(models))
    silent = (Gpu(index=len(models) + at, is_lost=True) for at in range(lost))
    found = gfd(Snapshot(gpus=(*heard, *silent)))
    assert found.get("gpu.product") == product


def test_a_node_that_lost_every_gpu_still_names_its_driver() -> None:
    lost = with_gpus(H100, is_lost=True, product=None, function=None, compute_capability=None)
    found = gfd(lost)
    assert found["cuda.driver-version.full"] == "580.95.05"
    assert {"gpu.product", "gpu.mode"}.isdisjoint(found)


@pytest.mark.parametrize("name", ["DGX Display", "NVIDIA DGX Display"])
def test_the_display_adapter_of_a_station_is_not_counted(name: str) -> None:
    display = with_gpus(H100, 0, product=name, function=PciFunction(pci_class="030000"))
    assert changed(H100, display) == {"gpu.count": "7"}


def test_the_clique_is_only_ours_to_write_where_the_rules_say_so() -> None:
    rack = shape("gb200x4-nvl72-34numa-4cx7")
    assert gfd(rack)["gpu.clique"] == "6b0e1b2c-0000-4000-8000-000000000072.2"
    assert ruled(rack, has_clique=False) == {"gpu.clique": None}


@pytest.mark.parametrize(
    "fabric",
    [
        Fabric(state=FabricState.IN_PROGRESS),
        Fabric(
            state=FabricState.COMPLETED,
            status=0,
            cluster_uuid="6b0e1b2c-0000-4000-8000-000000000072",
            clique_id=1,
        ),
    ],
)
def test_gpus_that_are_not_of_one_clique_have_none(fabric: Fabric) -> None:
    rack = shape("gb200x4-nvl72-34numa-4cx7")
    assert changed(rack, with_gpus(rack, 3, fabric=fabric)) == {"gpu.clique": None}


def test_a_model_that_is_known_is_described_before_gpus_that_never_told_theirs() -> None:
    silent = with_gpus(H100, 0, 1, 2, 3, 4, product=None)
    assert changed(H100, silent) == {"gpu.count": "3"}
