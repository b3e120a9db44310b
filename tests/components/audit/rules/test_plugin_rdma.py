"""PLG-007 to PLG-011: what pods get of the HCAs that device plugins advertise."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.components.audit.rules.plugin_rdma import SHARED_PLUGIN
from nodetopo.deviceplugin.sockets import MAX_PATH_BYTES, endpoint_name
from nodetopo.model.cdi import CdiSpec
from nodetopo.model.kubelet_state import DeviceState, HeldDevices
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.pod import AssignedDevices
from nodetopo.model.snapshot import Kernel, Snapshot
from tests.components.audit.judge import HOST, POD, SETTINGS, STATE, TRAINER, healthy, result

SHARED = "rdma/hca_shared_devices_a"
OURS = ("0000:18:00.0::0", "0000:40:00.0::0")
NUMBERS = ("0", "1")
FUNCTIONS = ("0000:18:00.2",)


def offering(
    ids: tuple[str, ...],
    *,
    machine: str = "dgx-h100",
    resource: str = SHARED,
    numa: tuple[int, ...] = (),
    netns: str | None = "shared",
    sockets: tuple[str, ...] = (),
    programs: tuple[str, ...] | None = (),
) -> Snapshot:
    """Return a good node on which the kubelet has devices of one more resource."""
    whole = healthy(machine)
    devices = tuple(PlacedDevice(resource=resource, id=one, numa_nodes=numa) for one in ids)
    return replace(
        whole,
        offer=NodeOffer(devices=devices),
        kernel=Kernel(rdma_netns=netns),
        kubelet_state=replace(STATE, plugin_sockets=sockets),
        host=replace(HOST, peer_programs=programs),
    )


def observed(code: str, snapshot: Snapshot) -> list[tuple[str, str]]:
    return [(one.subject, one.observed) for one in result(code, snapshot).findings]


# PLG-007


@pytest.mark.parametrize("ids", [OURS, NUMBERS], ids=["ours", "shared plugin"])
def test_hcas_of_the_host_are_invisible_where_namespaces_are_exclusive(
    ids: tuple[str, ...],
) -> None:
    found = offering(ids, netns="exclusive")
    assert observed("PLG-007", found) == [(SHARED, "RDMA network namespaces are exclusive")]
    assert result("PLG-007", found).verdict is Verdict.FAIL
    assert result("PLG-007", offering(ids)).verdict is Verdict.PASS


def test_a_resource_of_any_name_is_known_by_its_devices() -> None:
    found = offering(OURS, resource="example.com/fast", netns="exclusive")
    assert [subject for subject, _ in observed("PLG-007", found)] == ["example.com/fast"]
    replicas = offering(("GPU-1::0",), resource="nvidia.com/gpu.shared", netns="exclusive")
    assert result("PLG-007", replicas).skipped == "no device plugin advertises RDMA devices"


def test_functions_that_are_moved_into_pods_need_exclusive_namespaces() -> None:
    found = result("PLG-007", offering(FUNCTIONS, netns="exclusive"))
    assert (found.verdict, found.skipped) == (Verdict.PASS, None)


def test_an_unread_mode_is_missing_where_hcas_are_shared() -> None:
    assert result("PLG-007", offering(OURS, netns=None)).missing == (
        "mode of RDMA network namespaces",
    )
    assert result("PLG-007", offering(FUNCTIONS, netns=None)).missing == ()


def test_without_rdma_devices_nothing_is_judged() -> None:
    found = offering(("GPU-1",), resource="nvidia.com/gpu")
    assert result("PLG-007", found).skipped == "no device plugin advertises RDMA devices"


# PLG-008


def test_a_resource_without_numa_nodes_is_left_out_by_the_topology_manager() -> None:
    found = offering(FUNCTIONS)
    assert observed("PLG-008", found) == [(SHARED, "no device has a NUMA node")]
    assert result("PLG-008", offering(FUNCTIONS, numa=(0,))).verdict is Verdict.PASS


@pytest.mark.parametrize("ids", [NUMBERS, ("0000:18:00.0::0", "0000:9a:00.0::0")])
def test_who_gets_all_hcas_of_a_pool_has_the_near_ones_too(ids: tuple[str, ...]) -> None:
    found = result("PLG-008", offering(ids))
    assert found.skipped == "no device plugin advertises single HCAs"


def test_no_policy_needs_no_numa_nodes() -> None:
    settings = replace(SETTINGS, topology_manager_policy="none")
    found = replace(offering(FUNCTIONS), kubelet=settings)
    assert result("PLG-008", found).skipped == "topologyManagerPolicy is none"
    unknown = replace(found, kubelet=replace(SETTINGS, topology_manager_policy=None))
    assert result("PLG-008", unknown).missing == ("topologyManagerPolicy",)


def held(ids: Mapping[str, tuple[str, ...]]) -> Snapshot:
    """Return a node of which only the kubelet's checkpoint is known."""
    one = HeldDevices(pod_uid="u", container="c", resource=SHARED, ids=ids)
    devices = DeviceState(held=(one,) if ids else (), registered={SHARED: FUNCTIONS})
    return replace(offering(FUNCTIONS), offer=None, kubelet_state=replace(STATE, devices=devices))


def test_the_checkpoint_knows_the_nodes_of_held_devices_alone() -> None:
    assert observed("PLG-008", held({"-1": FUNCTIONS})) == [(SHARED, "no device has a NUMA node")]
    assert result("PLG-008", held({"1": FUNCTIONS})).verdict is Verdict.PASS
    assert result("PLG-008", held({})).missing == (f"NUMA nodes of the devices of {SHARED}",)


# PLG-009


def test_an_hca_of_the_nvlink_fabric_is_not_for_pods() -> None:
    found = offering(("0000:05:00.1::3", "0000:18:00.0::0"), machine="hgx-b200")
    assert observed("PLG-009", found) == [(SHARED, "offers mlx5_1 0000:05:00.1")]
    assert result("PLG-009", offering(OURS, machine="hgx-b200")).verdict is Verdict.PASS


def test_a_container_that_holds_one_is_named() -> None:
    devices = (AssignedDevices(resource=SHARED, ids=("0000:05:00.0::1",)),)
    pod = replace(POD, containers=(replace(TRAINER, devices=devices),))
    found = replace(offering(OURS, machine="hgx-b200"), pods=(pod,))
    assert observed("PLG-009", found) == [
        ("ml/job-0 container trainer", "holds mlx5_0 0000:05:00.0")
    ]


def test_numbers_leave_it_open_on_a_machine_with_such_hcas() -> None:
    assert result("PLG-009", offering(NUMBERS, machine="hgx-b200")).missing == (
        f"which HCAs {SHARED} gives",
    )
    assert result("PLG-009", offering(NUMBERS)).skipped == "no HCA of the NVLink fabric"


# PLG-010


SOCKET = "nodetopo-hca_shared_devices_a-7-0a1b2c3d.sock"


def test_two_plugins_for_the_shared_hcas_are_one_too_many() -> None:
    both = offering(OURS, sockets=(SOCKET,), programs=(SHARED_PLUGIN,))
    assert observed("PLG-010", both) == [
        (f"program {SHARED_PLUGIN}", f"runs alongside nodetopo, which advertises {SHARED}")
    ]
    assert result("PLG-010", offering(OURS, sockets=(SOCKET,))).verdict is Verdict.PASS


def test_our_sockets_are_known_by_the_names_that_the_plugin_gives_them(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * (MAX_PATH_BYTES - len(str(tmp_path)) - 45))
    for directory in (Path("/p"), deep):
        name = endpoint_name(SHARED, directory, "1-abcde")
        both = offering(OURS, sockets=(name,), programs=(SHARED_PLUGIN,))
        assert result("PLG-010", both).verdict is Verdict.FAIL, name


def test_the_plugin_may_run_where_ours_gives_out_gpus_alone() -> None:
    found = offering(NUMBERS, sockets=("nodetopo-gpu-7-0a1b2c3d.sock",), programs=(SHARED_PLUGIN,))
    assert result("PLG-010", found).skipped == "nodetopo advertises no RDMA devices here"


def test_unread_programs_leave_it_open() -> None:
    found = offering(OURS, sockets=(SOCKET,), programs=None)
    assert result("PLG-010", found).missing == ("programs that run on the host",)


# PLG-011


NET = CdiSpec(path="/var/run/cdi/nvidia.com_a.yaml", kind="nvidia.com/net-rdma")
GPUS = CdiSpec(path="/var/run/cdi/nvidia.com-gpu.yaml", kind="nvidia.com/gpu")
SAFE = CdiSpec(path="/etc/cdi/nvidia.yaml", kind="nvidia.com/gpu")


def with_specs(*specs: CdiSpec, programs: tuple[str, ...] = (SHARED_PLUGIN,)) -> Snapshot:
    host = replace(HOST, peer_programs=programs, cdi_specs=specs)
    return replace(healthy(), host=host)


def test_with_cdi_the_shared_plugin_deletes_what_begins_like_its_own_files() -> None:
    assert observed("PLG-011", with_specs(NET, GPUS, SAFE)) == [
        (f"program {SHARED_PLUGIN}", f"writes {NET.path}, and would delete {GPUS.path}")
    ]


@pytest.mark.parametrize("specs", [(NET,), (NET, SAFE), (GPUS,)])
def test_files_of_other_names_or_without_cdi_are_safe(specs: tuple[CdiSpec, ...]) -> None:
    found = result("PLG-011", with_specs(*specs))
    assert (found.verdict, found.skipped) == (Verdict.PASS, None)


def test_where_the_shared_plugin_does_not_run_nothing_is_deleted() -> None:
    found = result("PLG-011", with_specs(NET, GPUS, programs=()))
    assert found.skipped == f"{SHARED_PLUGIN} does not run here"
