"""ALN-006: the GPUs of a container and its HCAs, pair by pair on the PCI bus."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.hca import Hca, HcaKind
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.pod import AssignedDevices, Container, Pod
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.alignment.alignment_nodes import GPU, HCA, node, placed, row, worker
from tests.components.audit.judge import result

H100 = node()
SHARED = "rdma/hca_shared_devices_a"
NAME = "ml/job-0 container worker"


def judged(snapshot: Snapshot, *containers: Container) -> tuple[Verdict, tuple[Finding, ...]]:
    found = result("ALN-006", with_pods(snapshot, *containers))
    return found.verdict, found.findings


def with_pods(snapshot: Snapshot, *containers: Container) -> Snapshot:
    pods = (
        Pod(namespace="ml", name=f"job-{number}", phase="Running", containers=(one,))
        for number, one in enumerate(containers)
    )
    return replace(snapshot, pods=tuple(pods))


def holding(gpus: list[int], *ids: str, resource: str = HCA) -> Container:
    given = AssignedDevices(resource=resource, ids=ids)
    return replace(worker(H100, gpus), devices=(*(worker(H100, gpus).devices or ()), given))


def test_each_gpu_with_the_hca_behind_its_switches_is_as_good_as_it_gets() -> None:
    assert judged(H100, worker(H100, [0, 5], hcas=["mlx5_0", "mlx5_5"])) == (Verdict.PASS, ())


def test_the_hca_of_a_neighbour_on_the_same_numa_node_is_far() -> None:
    found = judged(H100, worker(H100, [0, 1], hcas=["mlx5_0", "mlx5_2"]))
    assert found == (
        Verdict.WARN,
        (
            Finding(
                subject=f"{NAME} with GPU0, GPU1",
                observed="GPU1 has mlx5_0 at NODE",
                expected="an HCA behind the same switch for 2 of 2",
            ),
        ),
    )
    # By NUMA node nothing is apart: ALN-003 has nothing to say.
    pod = placed(H100, worker(H100, [0, 1], hcas=["mlx5_0", "mlx5_2"]))
    assert not [it for it in row(pod).apart if it.part == "hcas"]


def test_an_hca_of_the_other_socket_is_at_sys() -> None:
    _, (finding,) = judged(H100, worker(H100, [0], hcas=["mlx5_7"]))
    assert finding.observed == "GPU0 has mlx5_7 at SYS"


def test_fewer_hcas_than_gpus_can_be_near_so_many_only() -> None:
    assert judged(H100, worker(H100, [0, 1, 2, 3], hcas=["mlx5_2"])) == (Verdict.PASS, ())
    _, (finding,) = judged(H100, worker(H100, [0, 1, 2, 3], hcas=["mlx5_4"]))
    assert finding.expected == "an HCA behind the same switch for 1 of 4"


def test_two_gpus_behind_one_switch_share_its_hca() -> None:
    dgx1 = node("dgx-1v")
    near = worker(dgx1, [0, 1], hcas=["mlx5_0"])
    assert judged(dgx1, near) == (Verdict.PASS, ())
    _, (finding,) = judged(dgx1, worker(dgx1, [0, 1], hcas=["mlx5_1"]))
    assert finding.expected == "an HCA behind the same switch for 2 of 2"


def test_a_gpu_that_has_no_near_hca_at_all_is_the_machines_fault() -> None:
    a100 = node("hgx-a100-4")  # two HCAs for four GPUs, none behind a switch
    assert judged(a100, worker(a100, [0], hcas=["mlx5_1"])) == (Verdict.PASS, ())
    _, (finding,) = judged(a100, worker(a100, [1], hcas=["mlx5_1"]))
    assert finding.expected == "one of the nearest HCAs for 1 of 1"


def test_hcas_that_are_down_are_not_expected() -> None:
    def down(hca: Hca) -> Hca:
        return replace(hca, ports=tuple(replace(port, state="DOWN") for port in hca.ports))

    broken = replace(
        H100, hcas=tuple(down(hca) for hca in (H100.hcas or ())[:1]) + (H100.hcas or ())[1:]
    )
    # GPU0's own is down: the nearest that works is one of the same NUMA node.
    assert judged(broken, worker(H100, [0], hcas=["mlx5_3"])) == (Verdict.PASS, ())
    assert judged(broken, worker(H100, [0], hcas=["mlx5_7"]))[0] is Verdict.WARN


def test_our_devices_are_near_in_every_mode_or_leave_it_open() -> None:
    near = holding([0], "0000:18:00.0::4", resource=SHARED)
    assert judged(H100, near) == (Verdict.PASS, ())
    far = result("ALN-006", with_pods(H100, holding([0], "0000:9a:00.0::4", resource=SHARED)))
    assert (far.verdict, far.findings) == (Verdict.UNKNOWN, ())
    assert far.missing == (f"which HCAs {SHARED} gave {NAME}",)


def offering(numa: tuple[int, ...], *keys: str, gpus: tuple[int, ...] = (0,)) -> Snapshot:
    """Return a node with a pool of ours, whose devices all have these NUMA nodes."""
    devices = [
        PlacedDevice(resource=SHARED, id=f"{key}::{token}", numa_nodes=numa)
        for key in keys
        for token in range(2)
    ]
    gpu = PlacedDevice(resource=GPU, id=H100.gpus[0].id, numa_nodes=gpus)
    return replace(H100, offer=NodeOffer(devices=(gpu, *devices)))


NEAR, FAR, OTHER = "0000:18:00.0", "0000:9a:00.0", "0000:4f:00.0"


def test_a_pool_over_sockets_without_numa_nodes_gives_every_hca() -> None:
    far = holding([0], f"{FAR}::1", resource=SHARED)
    assert judged(offering((), NEAR, FAR), far) == (Verdict.PASS, ())
    found = row(with_pods(offering((), NEAR, FAR), far))
    assert (found.hcas, found.hca_nodes) == (("mlx5_0", "mlx5_4"), (0, 1))
    # All that it has is far: then it is the pool that lacks the near one.
    _, (finding,) = judged(offering((), OTHER, FAR), far)
    assert finding.observed == "GPU0 has mlx5_2 at NODE"


def test_a_pool_over_sockets_with_numa_nodes_gives_the_chosen_one() -> None:
    far = holding([0], f"{FAR}::1", resource=SHARED)
    _, (finding,) = judged(offering((1,), NEAR, FAR), far)
    assert finding.observed == "GPU0 has mlx5_4 at SYS"
    found = row(with_pods(offering((1,), NEAR, FAR), far))
    assert [it.observed for it in found.apart if it.part == "hcas"] == ["mlx5_4 on NUMA node 1"]


def test_where_no_plugin_reports_numa_nodes_or_all_hcas_are_on_one_the_mode_is_open() -> None:
    far = holding([0], f"{FAR}::1", resource=SHARED)
    silent = with_pods(offering((), NEAR, FAR, gpus=()), far)
    assert result("ALN-006", silent).missing == (f"which HCAs {SHARED} gave {NAME}",)
    other = holding([0], f"{OTHER}::1", resource=SHARED)
    single = with_pods(offering((0,), NEAR, OTHER), other)
    assert result("ALN-006", single).missing == (f"which HCAs {SHARED} gave {NAME}",)


def test_a_subfunction_is_named_by_its_function_and_number() -> None:
    part = replace((H100.hcas or ())[0], name="sf", kind=HcaKind.SUBFUNCTION, subfunction=88)
    node_with_part = replace(H100, hcas=(*(H100.hcas or ()), part))
    held = holding([0], f"{NEAR}/sf88::0", resource=SHARED)
    assert judged(node_with_part, held) == (Verdict.PASS, ())
    assert row(with_pods(node_with_part, held)).hcas == ("sf",)


def test_a_number_of_the_shared_plugin_says_nothing() -> None:
    found = result("ALN-006", with_pods(H100, holding([0], "7", resource=SHARED)))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        (f"which HCAs {SHARED} gave {NAME}",),
    )


def test_a_virtual_function_that_was_moved_away_is_where_its_card_is() -> None:
    assert judged(H100, holding([0], "0000:18:00.4")) == (Verdict.PASS, ())
    _, (finding,) = judged(H100, holding([0], "0000:40:00.4"))
    assert finding.observed == "GPU0 has mlx5_1 at NODE"


def test_a_function_of_an_unknown_card_is_unknown() -> None:
    found = result("ALN-006", with_pods(H100, holding([0], "0000:f0:00.4")))
    assert found.missing == (f"which HCAs 0000:f0:00.4 gave {NAME}",)


def test_devices_that_the_kubelet_did_not_report_are_missing() -> None:
    silent = replace(worker(H100, [0]), devices=None)
    found = result("ALN-006", with_pods(H100, silent))
    assert found.missing == (f"the devices of {NAME}",)


@pytest.mark.parametrize(
    ("snapshot", "reason"),
    [
        (with_pods(H100, worker(H100, [0])), "no running container holds GPUs and HCAs"),
        (replace(H100, hcas=()), "no RDMA device"),
        (node("h100-vm-8"), "a virtual machine"),
    ],
)
def test_where_there_is_nothing_to_compare(snapshot: Snapshot, reason: str) -> None:
    assert result("ALN-006", snapshot).skipped == reason


def test_our_device_of_another_numa_node_is_apart_only_if_it_is_all_there_is() -> None:
    far = holding([0], "0000:9a:00.0::4", resource=SHARED)
    found = row(placed(H100, far))
    assert (found.hcas, found.hca_nodes) == (("mlx5_4",), (1,))
    assert not [it for it in found.apart if it.part == "hcas"]
    assert [it.what for it in found.missing if it.part == "hcas"] == [
        f"whether {NAME} has other HCAs of the pool than mlx5_4"
    ]
    single = row(placed(H100, holding([0], "0000:9a:00.0")))
    assert [it.observed for it in single.apart if it.part == "hcas"] == ["mlx5_4 on NUMA node 1"]
