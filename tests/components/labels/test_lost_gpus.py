"""A lost GPU makes no label wrong: what it did not say is absent, so that a publisher keeps it."""

from collections.abc import Callable, Collection, Mapping
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from nodetopo.components.labels.catalogue import is_complete, labels
from nodetopo.components.labels.rules import LabelRules, SharedLabel
from nodetopo.machines import bundled
from nodetopo.model.gpu import Fabric, FabricState, Gpu, Virtualization
from nodetopo.model.snapshot import Snapshot
from tests.budget import cases
from tests.components.labels.gfd_machines import all_divided, with_gpus
from tests.components.labels.topology_machines import shape
from tests.conftest import NODES
from tests.fake_nvml.fake import FakeNvml
from tests.machines.pipeline import scan

OK = "gpu.topology/topology-ok"
"""Of all labels the one that reports health: `false` where a GPU is lost."""

CLIQUE = "nvidia.com/gpu.clique"

IN_ORDER = (
    *("uuid", "ecc", "ecc_pending", "minor", "pci", "product", "architecture"),
    *("compute_capability", "memory_mib", "serial", "vbios", "module_id", "board_id"),
    *("numa_affinity", "memory_numa_node", "cpu_affinity", "pcie", "virtualization", "c2c"),
    *("persistence", "ecc_errors", "fabric", "remapped_rows", "retired_pages_pending"),
    *("recovery_action", "throttle_reasons", "mig"),
)
"""What NVML is asked of a GPU, in the order in which a whole reading asks."""

ON_PCI = ("path", "numa_node", "function")
"""What sysfs says of a GPU whose address is known, while its function is on the bus."""


def _machines() -> dict[str, Snapshot]:
    shapes = {path.name: shape(path.name) for path in sorted(NODES.iterdir())}
    dgx = bundled.machine("dgx-h100")
    return {
        **shapes,
        **{name: bundled.machine(name) for name in bundled.names()},
        "all divided": all_divided(dgx, "3g.40gb", "3g.40gb"),
        "half divided": structs.replace(
            dgx, gpus=(*dgx.gpus[:4], *all_divided(dgx, "7g.80gb").gpus[4:])
        ),
        "two models": with_gpus(dgx, 0, 1, 2, 3, product="NVIDIA H200", memory_mib=143771),
        "vGPUs": with_gpus(dgx, virtualization=Virtualization.VGPU),
        "one vGPU": with_gpus(dgx, 5, virtualization=Virtualization.VGPU),
        "two cliques": with_gpus(
            shape("gb200x4-nvl72-34numa-4cx7"),
            3,
            fabric=Fabric(
                state=FabricState.COMPLETED, status=0, cluster_uuid="6b0e1b2c-1", clique_id=9
            ),
        ),
    }


MACHINES = _machines()

any_rules = st.builds(
    LabelRules,
    mig=st.sampled_from(["none", "single", "mixed"]),
    shared=st.sampled_from([{}, {"nvidia.com/gpu": SharedLabel(replicas=4)}]),
)


def lost(snapshot: Snapshot, known: Mapping[int, int], gone: Collection[int] = ()) -> Snapshot:
    """Return *snapshot* with GPUs lost.

    Args:
        known: by index of the lost GPUs, how many of :data:`IN_ORDER` were answered, or are last
            known.
        gone: those that left the bus as well.
    """

    def left(gpu: Gpu) -> Gpu:
        if gpu.index not in known:
            return gpu
        kept = set(IN_ORDER[: known[gpu.index]])
        if "pci" in kept and gpu.index not in gone:
            kept |= set(ON_PCI)
        return Gpu(
            index=gpu.index, is_lost=True, **{name: getattr(gpu, name) for name in sorted(kept)}
        )

    names = {f"GPU{index}" for index in known}
    is_any_left = len(known) < len(snapshot.gpus)
    links = tuple(link for link in snapshot.nvlinks or () if link.gpu not in known)
    return structs.replace(
        snapshot,
        gpus=tuple(map(left, snapshot.gpus)),
        nvlinks=links if is_any_left and snapshot.nvlinks is not None else None,
        pairs=tuple(pair for pair in snapshot.pairs if not names & {pair.a, pair.b}),
    )


def wrong(healthy: Snapshot, now: Snapshot, rules: LabelRules) -> dict[str, str]:
    """Return the labels of *now* that *healthy* does not have like that, health aside."""
    before = labels(healthy, rules)
    return {
        key: value
        for key, value in labels(now, rules).items()
        if before.get(key) != value and key != OK
    }


@settings(max_examples=cases(300, 10_000))
@given(name=st.sampled_from(sorted(MACHINES)), data=st.data(), rules=any_rules)
def test_whatever_gpus_are_lost_no_label_says_anything_new(
    name: str, data: st.DataObject, rules: LabelRules
) -> None:
    healthy = MACHINES[name]
    indices = [gpu.index for gpu in healthy.gpus]
    which = data.draw(st.lists(st.sampled_from(indices), min_size=1, unique=True), "lost")
    known = {index: data.draw(st.integers(0, len(IN_ORDER)), "known") for index in which}
    gone = data.draw(st.sets(st.sampled_from(which)), "gone")
    now = lost(healthy, known, gone)
    assert wrong(healthy, now, rules) == {}
    assert not is_complete(now)  # so that a publisher keeps what is absent


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("known", [0, len(IN_ORDER)], ids=["after a restart", "before one"])
def test_one_gpu_and_all_gpus_lost_make_no_label_wrong(name: str, known: int) -> None:
    healthy = MACHINES[name]
    indices = [gpu.index for gpu in healthy.gpus]
    for which in ([indices[0]], [indices[-1]], indices[1:], indices):
        now = lost(healthy, dict.fromkeys(which, known))
        for mig in ("none", "single", "mixed"):
            assert wrong(healthy, now, LabelRules(mig=mig)) == {}


def absent(healthy: Snapshot, now: Snapshot) -> set[str]:
    """Return the labels that *now* lacks, without the part before the slash."""
    return {key.partition("/")[2] for key in labels(healthy).keys() - labels(now).keys()}


def test_one_gpu_lost_before_it_said_anything_leaves_all_that_the_others_decide() -> None:
    healthy = bundled.machine("dgx-h100")
    assert absent(healthy, lost(healthy, {5: 0})) == {
        *("gpu.count", "gpu.mode", "vgpu.present", "mig-enabled", "shape"),
        *("nvlink-domain-size", "nvlink-gpus", "nvlink-islands", "nvlink-links"),
        *("nvlink-version", "nvlink.version", "gpu-numa-nodes", "gpus-per-numa"),
        *("gpu-nic", "gdr", "rdma", "rdma-nics", "rdma-nics-per-numa", "rdma-rails", "rdma-rate"),
        *("interconnect", "nvlink-domain", "nvlink-partition"),  # it may not have joined the fabric
    }
    mesh = bundled.machine("dgx-1v")  # without a fabric
    kept = {"interconnect", "nvlink-domain", "nvlink-partition"}
    assert absent(mesh, lost(mesh, {5: 0})).isdisjoint(kept)


def test_a_gpu_lost_while_the_daemon_knows_it_takes_only_what_its_nvlinks_decide() -> None:
    healthy = bundled.machine("dgx-h100")
    assert absent(healthy, lost(healthy, {5: len(IN_ORDER)})) == {
        *("nvlink-domain-size", "nvlink-gpus", "nvlink-islands", "nvlink-links", "shape"),
        *("nvlink-version", "nvlink.version"),
    }


def test_of_a_node_that_lost_every_gpu_the_driver_the_host_and_the_kubelet_are_known() -> None:
    healthy = bundled.machine("dgx-h100")
    left = labels(lost(healthy, dict.fromkeys(range(8), 0)))
    assert {key for key in left if "/cuda." not in key} == {
        OK,
        *(f"gpu.topology/{name}" for name in ("tm-policy", "tm-scope", "numa-nodes")),
        *(f"gpu.topology/{name}" for name in ("cpu-manager", "memory-manager")),
        *(f"gpu.topology/{name}" for name in ("rdma-netns", "data-direct")),
        "nvidia.com/gpu.machine",
        "nvidia.com/mps.capable",
        "nvidia.com/nvswitch.present",  # its switches are still on the bus
    }


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("h100-vm-8", "nvidia.com/nvswitch.present"),
        ("dgx-h100", "gpu.topology/nvlink-islands"),
        ("dgx-h100", "gpu.topology/nvlink-domain-size"),
        ("dgx-h100", "gpu.topology/nvlink-gpus"),
        ("dgx-h100", "gpu.topology/interconnect"),
        ("dgx-h100", "nvidia.com/mig.capable"),
        ("gb200-nvl72", CLIQUE),
    ],
)
def test_a_label_that_lost_gpus_decide_is_unknown(name: str, key: str) -> None:
    healthy = bundled.machine(name)
    assert key in labels(healthy)
    everything = {gpu.index: 0 for gpu in healthy.gpus}
    assert key not in labels(lost(healthy, everything))


def test_a_tray_that_lost_one_gpu_waits_to_say_its_clique() -> None:
    tray = bundled.machine("gb200-nvl72")
    assert CLIQUE not in labels(lost(tray, {2: 0}))
    assert labels(lost(tray, {2: len(IN_ORDER)}))[CLIQUE] == labels(tray)[CLIQUE]


@pytest.mark.parametrize("name", ["h100x8-nvswitch-2numa-8cx7", "h100x8-vm-2numa-8vf"])
def test_a_first_scan_with_lost_gpus_says_nothing_new_either(
    name: str,
    tmp_path: Path,
    unpacked: Callable[[str], Path],
    fake_nvml_library: Path,
) -> None:
    nvml, root = FakeNvml(tmp_path, (NODES / name / "nvml.txt").read_text("utf-8")), unpacked(name)
    healthy = scan(tmp_path, root, fake_nvml_library, node="n")
    for which, kind in product(([3], list(range(8))), ("lost", "gone")):
        nvml.fail(*(f"{kind} {index}" for index in which))
        now = scan(tmp_path, root, fake_nvml_library, node="n")
        assert [gpu.index for gpu in now.gpus if gpu.is_lost] == which
        assert now.nvlinks == lost(healthy, dict.fromkeys(which, 0)).nvlinks
        assert wrong(healthy, now, LabelRules()) == {}
