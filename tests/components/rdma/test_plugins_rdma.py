"""Pools of HCAs on the kubelet beside GPUs, which follow each other."""

import errno
import json
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.components.rdma.component import Hcas
from nodetopo.components.rdma.composite import joined
from nodetopo.deviceplugin.fake_kubelet import AllocateView, ResourceView
from nodetopo.errors import InputError, UnreadableError
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.job import JobVariable
from tests.components.gpus.plugin_sets import WAIT_S, ServedNode, serving_node
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import node
from tests.failing_files import failing
from tests.generous_deadlines import PATIENCE_S
from tests.kernel.running import component_of

GPU, HCA = "nvidia.com/gpu", "rdma/hca_shared_devices_a"
HGX = node("h100x8-nvswitch-2numa-8cx7")
PAIRS = {f"GPU{n}": f"mlx5_{n}" for n in range(8)}


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """Return a function that writes a configuration with one pool and returns its path."""

    def write(mode: str = "chosen", most: int = 16, **entry: Any) -> Path:
        path = tmp_path / "rdma.json"
        pool = {
            "resourceName": "hca_shared_devices_a",
            "rdmaHcaMax": most,
            "selectors": {"vendors": ["15b3"]},
            "mode": mode,
            **entry,
        }
        path.write_text(json.dumps({"configList": [pool]}))
        return path

    return write


def view(served: ServedNode, resource: str = HCA) -> ResourceView:
    return served.kubelet.wait_registered(WAIT_S, resource)


def gpu_names(snapshot: Snapshot, ids: tuple[str, ...]) -> list[str]:
    return sorted(gpu.name for gpu in snapshot.gpus if gpu.id in ids)


def hca_names(snapshot: Snapshot, ids: tuple[str, ...]) -> list[str]:
    keys = {name.rpartition("::")[0] for name in ids}
    return sorted(hca.name for hca in snapshot.hcas or () if str(hca.pci) in keys)


def nodes_of(answer: AllocateView) -> list[str]:
    return [path.removeprefix("/dev/infiniband/") for path, *_ in answer.device_nodes]


def without(ids: list[str], taken: tuple[str, ...]) -> list[str]:
    return [name for name in ids if name not in taken]


def test_the_shared_plugins_pool_has_its_tokens_and_gives_every_hca(config: Any) -> None:
    with serving_node(rdma_config=config("shared", most=1000)) as served:
        served.plugins.take(HGX)
        assert served.listed(GPU, HCA) == {GPU: 8, HCA: 1000}
        devices = view(served).devices
        assert all(device.numa_nodes == () for device in devices)
        assert len({device.id.rpartition("::")[0] for device in devices}) == 8
        answer = served.kubelet.allocate([devices[0].id], HCA)
        names = nodes_of(answer)
        assert [name for name in names if name.startswith("uverbs")] == [
            f"uverbs{n}" for n in range(8)
        ]
        assert [name for name in names if name.startswith("umad")] == [f"umad{n}" for n in range(8)]
        assert [name for name in names if name.startswith("issm")] == [f"issm{n}" for n in range(8)]
        assert len(names) == len(set(names))
        assert {access for *_, access in answer.device_nodes} == {"rwm"}
        assert answer.envs == {}


@pytest.mark.parametrize(("asked", "nodes"), [({}, ()), ({"numa": True}, (1,))])
def test_a_shared_pool_on_one_numa_node_reports_it_only_where_asked(
    config: Any, asked: dict[str, bool], nodes: tuple[int, ...]
) -> None:
    near = [hca.name for hca in HGX.hcas or () if hca.numa_node == 1]
    with serving_node(rdma_config=config("shared", selectors={"hcas": near}, **asked)) as served:
        served.plugins.take(HGX)
        assert {device.numa_nodes for device in view(served).devices} == {nodes}


def test_a_shared_pool_of_several_numa_nodes_reports_none_even_where_asked(config: Any) -> None:
    with serving_node(rdma_config=config("shared", numa=True)) as served:
        served.plugins.take(HGX)
        assert {device.numa_nodes for device in view(served).devices} == {()}


@pytest.mark.parametrize("most", [1, 7])
def test_few_devices_of_a_shared_pool_give_every_healthy_hca(config: Any, most: int) -> None:
    with serving_node(rdma_config=config("shared", most=most)) as served:
        served.plugins.take(HGX)
        devices = view(served).devices
        assert len(devices) == most
        assert not served.plugins.refusals  # no HCA goes without
        names = nodes_of(served.kubelet.allocate([devices[0].id], HCA))
        every = [f"uverbs{n}" for n in range(8)]
        assert [name for name in names if name.startswith("uverbs")] == every

        served.have_unhealthy(devices[0].id.removesuffix("::0"))
        served.plugins.take(HGX)
        names = nodes_of(served.kubelet.allocate([devices[0].id], HCA))
        assert [name for name in names if name.startswith("uverbs")] == every[1:]
        assert all(device.is_healthy for device in view(served).devices)


def test_devices_of_a_shared_pool_are_unhealthy_once_every_hca_is(config: Any) -> None:
    pair = ["mlx5_0", "mlx5_1"]
    with serving_node(rdma_config=config("shared", most=3, selectors={"hcas": pair})) as served:
        served.plugins.take(HGX)
        served.listed(HCA)
        served.have_unhealthy(*(str(hca.pci) for hca in HGX.hcas or () if hca.name in pair))
        served.plugins.take(HGX)
        assert eventually(lambda: not any(device.is_healthy for device in view(served).devices))
        # The kubelet chose before it heard of it.
        names = nodes_of(served.kubelet.allocate([view(served).devices[0].id], HCA))
        assert [name for name in names if name.startswith("uverbs")] == ["uverbs0"]


def test_tokens_of_a_chosen_pool_have_the_node_of_their_hca(config: Any) -> None:
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(HGX)
        devices = view(served).devices
        assert len(devices) == 16
        by_node = {numa: [d.id for d in devices if d.numa_nodes == (numa,)] for numa in (0, 1)}
        assert hca_names(HGX, tuple(by_node[0])) == [f"mlx5_{n}" for n in range(4)]
        assert len(by_node[1]) == 8


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_hcas_follow_the_gpus_of_the_container(config: Any, size: int) -> None:
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(HGX)
        served.listed(GPU, HCA)
        gpus = served.kubelet.preferred(size)
        served.kubelet.allocate(gpus)
        hcas = served.kubelet.preferred(size, resource=HCA)
        answer = served.kubelet.allocate(hcas, HCA)
        expected = [PAIRS[name] for name in gpu_names(HGX, gpus)]
        assert hca_names(HGX, hcas) == expected
        assert [name for name in nodes_of(answer) if name.startswith("uverbs")] == [
            name.replace("mlx5_", "uverbs") for name in expected
        ]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_gpus_follow_the_hcas_of_the_container(config: Any, size: int) -> None:
    with serving_node(rdma_config=config("exclusive")) as served:
        served.plugins.take(HGX)
        served.listed(GPU, HCA)
        free_gpus = [gpu.id for gpu in HGX.gpus]
        free_hcas = [device.id for device in view(served).devices]
        for _ in range(8 // size):
            hcas = served.kubelet.preferred(size, free_hcas, resource=HCA)
            served.kubelet.allocate(hcas, HCA)
            gpus = served.kubelet.preferred(size, free_gpus)
            served.kubelet.allocate(gpus)
            assert hca_names(HGX, hcas) == [PAIRS[name] for name in gpu_names(HGX, gpus)]
            free_gpus, free_hcas = without(free_gpus, gpus), without(free_hcas, hcas)
        assert (free_gpus, free_hcas) == ([], [])


def test_gpus_follow_hcas_that_the_kubelet_chose(config: Any) -> None:
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(HGX)
        served.listed(GPU, HCA)
        far = [d.id for d in view(served).devices if d.numa_nodes == (1,) and d.id.endswith("::1")]
        served.kubelet.allocate(far[1:3], HCA)
        gpus = served.kubelet.preferred(2)
        assert gpu_names(HGX, gpus) == ["GPU5", "GPU6"]


def test_containers_that_ask_for_one_kind_alone_are_not_led_by_old_ones(config: Any) -> None:
    with serving_node(rdma_config=config()) as served:
        now = [0.0]
        served.hcas.joint._requesters._clock = lambda: now[0]
        served.plugins.take(HGX)
        served.listed(GPU, HCA)
        served.kubelet.allocate([HGX.gpus[7].id])
        now[0] = 2 * PATIENCE_S
        alone = served.kubelet.preferred(1, resource=HCA)
        assert hca_names(HGX, alone) != ["mlx5_7"]


def test_hcas_asked_for_alone_are_spread(config: Any) -> None:
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(HGX)
        free = [device.id for device in view(served).devices]
        served.listed(GPU)
        for gpu in HGX.gpus:  # every GPU is in use
            served.kubelet.allocate([gpu.id])
        served.hcas.joint._requesters._clock = lambda: monotonic() + 2 * PATIENCE_S
        got: list[str] = []
        for _ in range(8):
            chosen = served.kubelet.preferred(1, free, resource=HCA)
            got += hca_names(HGX, chosen)
            free = without(free, chosen)
        assert sorted(got) == sorted(PAIRS.values())


def test_an_hca_that_goes_stays_listed_unhealthy_and_one_renamed_keeps_its_devices(
    config: Any,
) -> None:
    with serving_node(rdma_config=config("exclusive")) as served:
        served.plugins.take(HGX)
        before = view(served).devices
        hcas = list(HGX.hcas or ())
        renamed = replace(hcas[0], name="rocep24s0")
        served.plugins.take(replace(HGX, hcas=(renamed, *hcas[2:])))
        assert eventually(lambda: view(served).devices != before)
        after = view(served).devices
        assert [device.id for device in after] == [device.id for device in before]
        assert [device.is_healthy for device in after] == [True, False] + [True] * 6
        with pytest.raises(UnreadableError):
            served.kubelet.allocate(["0000:ff:00.0::0"], HCA)


def test_a_list_that_cannot_be_read_changes_nothing(config: Any) -> None:
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(HGX)
        before = view(served)
        served.plugins.take(replace(HGX, hcas=None))
        assert view(served) == before


def test_unhealthy_hcas_are_not_handed_out(config: Any) -> None:
    with serving_node(rdma_config=config("exclusive")) as served:
        served.plugins.take(HGX)
        served.listed(HCA)
        key = str((HGX.hcas or ())[3].pci)
        served.have_unhealthy(key)
        served.plugins.take(HGX)
        assert eventually(lambda: not all(device.is_healthy for device in view(served).devices))
        assert [d.id for d in view(served).devices if not d.is_healthy] == [f"{key}::0"]


def test_tokens_that_no_kubelet_reads_leave_the_last_list(config: Any) -> None:
    with serving_node(rdma_config=config(most=16)) as served:
        served.plugins.take(HGX)
        assert served.listed(HCA) == {HCA: 16}
        for _ in range(2):
            served.reconfigure(rdma_config=config(most=200_000))
            (refusal,) = served.plugins.refusals
            assert refusal.reason.startswith(f"{HCA}: a list of 200000 devices takes ")
            assert "lower rdmaHcaMax" in refusal.reason
            assert served.listed(HCA) == {HCA: 16}
        served.reconfigure(rdma_config=config(most=16_384))
        assert eventually(lambda: served.listed(HCA) == {HCA: 16_384})


def test_a_node_without_hcas_is_ready_and_says_what_it_lacks(config: Any) -> None:
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(replace(HGX, hcas=()))
        assert served.listed(GPU) == {GPU: 8}
        assert list(served.plugins.states) == [GPU]
        (refusal,) = served.plugins.refusals
        assert refusal.reason == f"{HCA}: no HCA of this node matches it"
        assert refusal.resource is None  # which would be a reason for not being ready


def test_pools_are_served_on_a_node_without_gpus(config: Any) -> None:
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(replace(HGX, gpus=()))
        assert served.listed(HCA) == {HCA: 16}
        chosen = served.kubelet.preferred(2, resource=HCA)
        assert len(hca_names(HGX, chosen)) == 2


def test_pools_come_and_go_with_the_configuration(config: Any, tmp_path: Path) -> None:
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(HGX)
        served.listed(GPU, HCA)
        gpu_endpoint = served.plugins.states[GPU].endpoint
        other = tmp_path / "other.json"
        pool = {"resourceName": "b", "rdmaHcaMax": 4, "selectors": {"hcas": ["mlx5_0"]}}
        other.write_text(json.dumps({"configList": [pool]}))
        served.reconfigure(rdma_config=other)
        assert served.listed("rdma/b") == {"rdma/b": 4}
        assert served.lacks(HCA)
        served.reconfigure()
        assert served.lacks("rdma/b")
        assert served.plugins.states[GPU].endpoint == gpu_endpoint


def test_hcas_by_cdi_are_named_and_defined(config: Any, tmp_path: Path) -> None:
    sysfs = tmp_path / "sys"
    (sysfs / "class" / "misc" / "rdma_cm").mkdir(parents=True)
    with serving_node(
        rdma_config=config("exclusive"),
        rdma_hand_over="cdi-cri",
        sysfs_root=sysfs,
        host_root=tmp_path,
    ) as served:
        served.plugins.take(HGX)
        devices = view(served).devices
        assert all(device.is_healthy for device in devices)
        answer = served.kubelet.allocate([devices[0].id], HCA)
        kind = "device-plugin.nodetopo.io/hca"
        key = devices[0].id.removesuffix("::0")
        assert answer.cdi_devices == (f"{kind}={key}", f"{kind}=rdma-cm")
        assert answer.device_nodes == ()
        (file,) = (tmp_path / "var" / "run" / "cdi").glob("*hca*")
        spec = json.loads(file.read_text())
        defined = {one["name"]: one["containerEdits"]["deviceNodes"] for one in spec["devices"]}
        assert spec["kind"] == kind
        assert len(defined) == 9
        assert [node["path"] for node in defined["rdma-cm"]] == ["/dev/infiniband/rdma_cm"]
        assert [node["path"] for node in defined[key]] == [
            "/dev/infiniband/issm0",
            "/dev/infiniband/umad0",
            "/dev/infiniband/uverbs0",
        ]


def test_the_connection_manager_is_given_once_where_the_host_has_it(
    config: Any, tmp_path: Path
) -> None:
    sysfs = tmp_path / "sys"
    (sysfs / "class" / "misc").mkdir(parents=True)
    with serving_node(rdma_config=config("shared"), sysfs_root=sysfs) as served:
        served.plugins.take(HGX)
        first = view(served).devices[0].id
        assert "rdma_cm" not in nodes_of(served.kubelet.allocate([first], HCA))
        (sysfs / "class" / "misc" / "rdma_cm").mkdir()

        def has_one() -> bool:
            # The host is looked at with each list of devices, once a second at most.
            served.plugins.take(HGX)
            return nodes_of(served.kubelet.allocate([first], HCA)).count("rdma_cm") == 1

        assert eventually(has_one)


@pytest.mark.parametrize(("asked", "nodes"), [({}, {"issm0"}), ({"issm": False}, set())])
def test_issm_is_given_unless_the_pool_says_otherwise(
    config: Any, asked: dict[str, bool], nodes: set[str]
) -> None:
    with serving_node(rdma_config=config("exclusive", **asked)) as served:
        served.plugins.take(HGX)
        first = view(served).devices[0].id
        names = set(nodes_of(served.kubelet.allocate([first], HCA)))
        assert names - {"rdma_cm"} == {"umad0", "uverbs0"} | nodes


STORAGE = node("a100x8-nvswitch-8numa-10cx6")


def test_a_pool_of_cards_that_are_usually_left_out_is_offered_and_says_so(config: Any) -> None:
    every = STORAGE.hcas or ()
    left_out = {"mlx5_4", "mlx5_5", "mlx5_10", "mlx5_11"}
    hcas = tuple(
        replace(hca, function=replace(hca.function, device="a2dc"))
        if hca.function is not None and hca.name in left_out
        else hca
        for hca in every
    )
    selectors = {"vendors": ["15b3"], "deviceIDs": ["a2dc"]}
    with serving_node(rdma_config=config("shared", selectors=selectors)) as served:
        served.plugins.take(replace(STORAGE, hcas=hcas))
        assert served.listed(HCA) == {HCA: 16}
        (pool,) = served.hcas.pools
        assert {hca.name for hca in pool.resource.hcas.values()} == left_out
        assert pool.resource.exception is not None
        assert "mlx5_4: no GPU has it nearest" in pool.resource.exception
        assert not served.plugins.refusals


def test_a_pool_whose_hcas_are_all_left_out_says_so(config: Any) -> None:
    hcas = tuple(replace(hca, char_devices=()) for hca in (HGX.hcas or ())[:2])
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(replace(HGX, hcas=hcas))
        assert served.listed(GPU) == {GPU: 8}
        reasons = [one.reason for one in served.plugins.refusals]
        assert f"{HCA}: no HCA that matches it is free: 2 left out" in reasons
        assert any("load ib_uverbs" in reason for reason in reasons)


PAIR = "example.com/gpu-with-hca"


def test_pairs_are_one_resource_and_neither_half_is_in_another(config: Any) -> None:
    with serving_node(rdma_config=config(), gpu_hca_resource=PAIR) as served:
        served.plugins.take(HGX)
        assert served.listed(PAIR) == {PAIR: 8}
        assert list(served.plugins.states) == [PAIR]
        (refusal,) = served.plugins.refusals
        assert refusal.reason == f"{HCA}: no HCA that matches it is free: 8 paired with a GPU"
        gpus = served.kubelet.preferred(4, resource=PAIR)
        assert gpu_names(HGX, gpus) == ["GPU0", "GPU1", "GPU2", "GPU3"]
        answer = served.kubelet.allocate(gpus, PAIR)
        assert len(answer.cdi_devices) == 4
        assert [name for name in nodes_of(answer) if name.startswith("uverbs")] == [
            f"uverbs{n}" for n in range(4)
        ]


def test_gpus_without_an_hca_of_their_own_are_offered_alone(config: Any) -> None:
    few = replace(HGX, hcas=(HGX.hcas or ())[:3])
    with serving_node(rdma_config=config(), gpu_hca_resource=PAIR) as served:
        served.plugins.take(few)
        assert served.listed(PAIR, GPU) == {PAIR: 3, GPU: 5}
        reasons = [one.reason for one in served.plugins.refusals]
        assert any("GPU3, GPU4, GPU5, GPU6, GPU7: offered alone" in text for text in reasons)
        # Another HCA: the pairs that exist stay.
        served.plugins.take(HGX)
        assert eventually(lambda: served.listed(PAIR) == {PAIR: 8})
        assert served.hcas._pairs.hcas[HGX.gpus[0].id] == str((HGX.hcas or ())[0].pci)


def test_a_pair_is_as_healthy_as_both(config: Any) -> None:
    with serving_node(rdma_config=config(), gpu_hca_resource=PAIR) as served:
        served.plugins.take(HGX)
        served.listed(PAIR)
        key = str((HGX.hcas or ())[2].pci)
        served.have_unhealthy(key)
        served.plugins.take(HGX)
        assert eventually(lambda: not all(d.is_healthy for d in view(served, PAIR).devices))
        unhealthy = [d.id for d in view(served, PAIR).devices if not d.is_healthy]
        assert unhealthy == [HGX.gpus[2].id]


def test_pairs_can_be_turned_on_and_off(config: Any) -> None:
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(HGX)
        served.listed(GPU, HCA)
        served.reconfigure(rdma_config=config(), gpu_hca_resource=PAIR)
        assert served.listed(PAIR) == {PAIR: 8}
        assert served.lacks(GPU)
        served.reconfigure(rdma_config=config())
        assert served.listed(GPU, HCA) == {GPU: 8, HCA: 16}
        assert served.lacks(PAIR)


VM = node("h100x8-vm-2numa-8vf")
"""No HCA is nearer to one GPU of its socket than to another."""


def late_pairs(served: ServedNode) -> dict[str, str]:
    """Return the pairs of a node on which an HCA appears after the first offer."""
    hcas = VM.hcas or ()
    served.plugins.take(replace(VM, hcas=(*hcas[:3], *hcas[4:])))
    served.listed(PAIR)
    served.plugins.take(VM)
    assert eventually(lambda: served.listed(PAIR) == {PAIR: 8})
    return dict(served.hcas._pairs.hcas)


def test_a_restart_keeps_the_pairs_that_running_pods_have(tmp_path: Path) -> None:
    settings = {"gpu_hca_resource": PAIR}
    with serving_node(**settings, health_file=tmp_path / "health.json") as served:
        before = late_pairs(served)
    with serving_node(**settings) as served:
        served.plugins.take(VM)
        assert served.hcas._pairs.hcas != before, "else nothing is shown"
    with serving_node(**settings, health_file=tmp_path / "health.json") as served:
        served.plugins.take(VM)
        assert served.hcas._pairs.hcas == before


def test_a_pair_whose_hca_is_late_again_waits_for_it(config: Any, tmp_path: Path) -> None:
    settings = {"rdma_config": config(), "gpu_hca_resource": PAIR}
    with serving_node(**settings, health_file=tmp_path / "health.json") as served:
        served.plugins.take(HGX)
        served.listed(PAIR)
        before = dict(served.hcas._pairs.hcas)
    (tmp_path / "hcas.json").unlink(missing_ok=True)
    with serving_node(**settings, health_file=tmp_path / "health.json") as served:
        served.plugins.take(replace(HGX, hcas=(HGX.hcas or ())[1:]))
        assert served.listed(PAIR) == {PAIR: 8}
        late = [device.id for device in view(served, PAIR).devices if not device.is_healthy]
        assert late == [HGX.gpus[0].id]
        served.plugins.take(HGX)
        assert eventually(lambda: all(one.is_healthy for one in view(served, PAIR).devices))
        assert served.hcas._pairs.hcas == before


def test_the_hca_of_a_gpu_that_is_not_listed_stays_its_own() -> None:
    hcas = HGX.hcas or ()
    few = replace(HGX, hcas=(hcas[0], *hcas[2:]))
    with serving_node(gpu_hca_resource=PAIR) as served:
        served.plugins.take(few)
        before = dict(served.hcas._pairs.hcas)
    with serving_node(gpu_hca_resource=PAIR) as served:
        served.hcas._ever_paired = before
        served.plugins.take(replace(few, gpus=few.gpus[1:]))
        assert before[few.gpus[0].id] not in served.hcas._pairs.hcas.values()
        served.plugins.take(few)
        assert served.hcas._pairs.hcas == before


def test_pairs_that_a_start_cannot_read_are_joined_later(tmp_path: Path) -> None:
    settings = {"gpu_hca_resource": PAIR, "health_file": tmp_path / "health.json"}
    with serving_node(**settings) as served:
        before = late_pairs(served)
        served.plugins.take(VM)
    with ExitStack() as stack:
        with failing(tmp_path / "pairs.json", errno.EIO, reads=True, writes=False):
            served = stack.enter_context(serving_node(**settings))
            assert not served.hcas._ever_paired
        served.plugins.take(VM)
        assert served.hcas._pairs.hcas == before


def test_of_two_pairs_with_one_hca_that_of_the_file_stays() -> None:
    late = {"GPU-a": "h0", "GPU-b": "h1", "GPU-c": "h2"}
    offered = {"GPU-b": "h3", "GPU-d": "h0", "GPU-e": "h4"}
    assert joined(late, offered) == {"GPU-a": "h0", "GPU-b": "h3", "GPU-c": "h2", "GPU-e": "h4"}


def test_a_reload_keeps_the_pairs() -> None:
    with serving_node(gpu_hca_resource=PAIR) as served:
        before = late_pairs(served)
        served.reconfigure()
        assert served.lacks(PAIR)
        served.reconfigure(gpu_hca_resource=PAIR)
        assert served.listed(PAIR) == {PAIR: 8}
        assert served.hcas._pairs.hcas == before


def test_lost_pairs_are_reported(config: Any, tmp_path: Path) -> None:
    (tmp_path / "pairs.json").write_text("{")
    settings = {"rdma_config": config(), "gpu_hca_resource": PAIR}
    with serving_node(**settings, health_file=tmp_path / "health.json") as served:
        (notice,) = component_of(served.kernel, Hcas).notices()
        assert notice.reason == "StateFileUnusable"
        assert notice.message.startswith("pairs of GPUs and HCAs: ")
        served.plugins.take(HGX)
        assert served.listed(PAIR) == {PAIR: 8}
    assert (tmp_path / "pairs.json.bad").read_text() == "{"


@pytest.mark.parametrize("name", [GPU, HCA])
def test_pairs_need_a_name_of_their_own(config: Any, name: str) -> None:
    with (
        pytest.raises(InputError, match="is the name of another resource"),
        serving_node(rdma_config=config(), gpu_hca_resource=name),
    ):
        pass


def test_containers_get_no_variables_by_default(config: Any) -> None:
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(HGX)
        served.listed(GPU, HCA)
        assert served.kubelet.allocate([HGX.gpus[0].id]).envs == {}
        assert served.kubelet.allocate([view(served).devices[0].id], HCA).envs == {}


@pytest.mark.parametrize("first", [GPU, HCA])
def test_variables_name_the_hcas_and_whose_they_are(config: Any, first: str) -> None:
    variables = tuple(JobVariable)
    with serving_node(rdma_config=config(), job_variables=variables) as served:
        served.plugins.take(HGX)
        served.listed(GPU, HCA)
        gpus, hcas = HGX.gpus[4:6], (HGX.hcas or ())[4:6]
        keys = [f"{hca.pci}::0" for hca in hcas]
        answers = {}
        for resource in (first, HCA if first == GPU else GPU):
            ids = [gpu.id for gpu in gpus] if resource == GPU else keys
            answers[resource] = dict(served.kubelet.allocate(ids, resource).envs)
        lists = {
            "NCCL_IB_HCA": "=mlx5_4:1,mlx5_5:1",
            "NVSHMEM_HCA_LIST": "mlx5_4:1,mlx5_5:1",
        }
        assert {name: answers[HCA][name] for name in lists} == lists
        # Of every GPU: which ones the container has is a guess, and one must not be missing.
        mapping = dict(
            pair.split("=") for pair in answers[HCA]["VLLM_GPU_NIC_PCIE_MAPPING"].split(",")
        )
        assert len(mapping) == 8
        for gpu, hca in zip(gpus, hcas, strict=True):
            assert mapping[str(gpu.pci)] == str(hca.pci)
        assert answers[GPU] == {}


def test_pairs_have_all_variables_in_one_answer() -> None:
    variables = tuple(JobVariable)
    with serving_node(gpu_hca_resource=PAIR, job_variables=variables) as served:
        served.plugins.take(HGX)
        served.listed(PAIR)
        envs = served.kubelet.allocate([HGX.gpus[3].id], PAIR).envs
        assert envs["NCCL_IB_HCA"] == "=mlx5_3:1"
        assert envs["VLLM_GPU_NIC_PCIE_MAPPING"] == "0000:61:00.0=0000:5e:00.0"


def with_hca(snapshot: Snapshot, name: str, **facts: Any) -> Snapshot:
    """Return *snapshot* with other *facts* of the HCA *name*."""
    assert name in {hca.name for hca in snapshot.hcas or ()}
    hcas = [replace(hca, **facts) if hca.name == name else hca for hca in snapshot.hcas or ()]
    return replace(snapshot, hcas=tuple(hcas))


def at_half_rate(snapshot: Snapshot, name: str) -> Snapshot:
    ports = next(hca.ports for hca in snapshot.hcas or () if hca.name == name)
    slow = [replace(port, rate_gbps=(port.rate_gbps or 0) / 2) for port in ports]
    return with_hca(snapshot, name, ports=tuple(slow))


def each_its_own_model(snapshot: Snapshot) -> Snapshot:
    """Return *snapshot* with no two HCAs of one model: each tells only its own rate."""
    hcas = snapshot.hcas or ()
    for at, hca in enumerate(hcas):
        snapshot = with_hca(snapshot, hca.name, board_id=f"MT_{at:010}")
    return snapshot


@pytest.mark.parametrize("mode", ["exclusive", "chosen"])
@pytest.mark.parametrize("is_one_model", [True, False])
def test_an_hca_that_trains_at_half_rate_stays_in_its_pool(
    config: Any, mode: str, is_one_model: bool
) -> None:
    machine = node("h100x8-vm-2numa-8vf")
    if not is_one_model:
        machine = each_its_own_model(machine)
    with serving_node(rdma_config=config(mode)) as served:
        served.plugins.take(machine)
        before = {device.id for device in view(served).devices}
        served.plugins.take(at_half_rate(machine, "mlx5_ib3"))
        assert {hca.name for hca in served.pool(HCA).hcas.values()} == {
            hca.name for hca in machine.hcas or ()
        }
        assert {device.id for device in served.pool(HCA).devices if device.is_healthy} == before


def test_an_hca_stays_in_its_pool_when_its_interface_moves_into_a_pod(config: Any) -> None:
    names = [netdev.name for hca in HGX.hcas or () for netdev in hca.netdevs]
    with serving_node(rdma_config=config(selectors={"ifNames": names})) as served:
        served.plugins.take(HGX)
        served.listed(HCA)
        served.plugins.take(with_hca(HGX, "mlx5_3", netdevs=()))
        assert len(served.pool(HCA).hcas) == 8
        assert all(device.is_healthy for device in served.pool(HCA).devices)


def test_an_hca_that_no_program_can_use_any_more_is_unhealthy_and_stays(config: Any) -> None:
    with serving_node(rdma_config=config("exclusive")) as served:
        served.plugins.take(HGX)
        served.listed(HCA)
        served.plugins.take(with_hca(HGX, "mlx5_3", char_devices=()))
        devices = served.pool(HCA).devices
        assert hca_names(HGX, tuple(one.id for one in devices if not one.is_healthy)) == ["mlx5_3"]
        assert len(devices) == 8


def test_another_pool_by_the_same_name_remembers_nothing(config: Any) -> None:
    with serving_node(rdma_config=config("exclusive")) as served:
        served.plugins.take(HGX)
        served.listed(HCA)
        served.reconfigure(rdma_config=config("exclusive", selectors={"hcas": ["mlx5_1"]}))
        assert [hca.name for hca in served.pool(HCA).hcas.values()] == ["mlx5_1"]


def test_cards_for_storage_leave_a_pool_once_the_places_of_gpus_are_known(config: Any) -> None:
    board = node("h200x8-nvswitch-2numa-10roce")
    with serving_node(rdma_config=config()) as served:
        served.plugins.take(replace(board, gpus=()))
        assert len(served.pool(HCA).hcas) == 10
        served.plugins.take(board)
        assert len(served.pool(HCA).hcas) == 8
