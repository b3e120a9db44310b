"""POD-002 on how far HCAs may be, on addresses and interfaces, and on the host's network."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.gpu import ConfidentialCompute, NvidiaDriver
from nodetopo.model.hca import Gid, Hca
from nodetopo.model.pod import Pod
from nodetopo.model.snapshot import Kernel, Snapshot
from tests.components.audit.judge import healthy
from tests.components.audit.rules.gpu_pods import (
    found,
    job,
    missing,
    node,
    observed,
    on_host,
    pod,
    trainer,
    verdict,
)

RDMA = {"rdma/hca": 1}
OFF = "turns GPUDirect RDMA off"
ROCE = "hgx-h200"
"""A machine whose HCAs speak Ethernet."""


def level(value: str, name: str = "NCCL_NET_GDR_LEVEL", **env: str) -> Pod:
    return pod(trainer(RDMA, env={name: value, **env}))


@pytest.mark.parametrize(
    ("value", "machine", "nearest"),
    [
        ("PIX", "dgx-h100", "PXB"),
        ("NVL", "dgx-h100", "PXB"),
        ("1", "dgx-h100", "PXB"),
        ("PXB", "gb200-nvl72", "P2C"),
        ("2", "gb200-nvl72", "P2C"),
        ("C2C", "dgx-a100", "PIX"),
    ],
)
def test_a_level_that_no_hca_is_near_enough_for_is_found(
    value: str, machine: str, nearest: str
) -> None:
    snapshot = node(level(value), machine=machine)
    assert found("POD-002", snapshot) == [
        (
            "ml/job-0 container trainer",
            f"NCCL_NET_GDR_LEVEL={value} {OFF}: the nearest HCAs are at {nearest}",
            "unset",
        )
    ]


@pytest.mark.parametrize(
    ("value", "machine"),
    [
        ("PXB", "dgx-h100"),
        ("2", "dgx-h100"),
        ("9", "dgx-h100"),
        ("P2C", "gb200-nvl72"),
        ("PIX", "dgx-a100"),
        ("PIX", "hgx-a100-4"),
    ],
)
def test_a_level_that_loses_nothing_is_fine(value: str, machine: str) -> None:
    assert verdict("POD-002", node(level(value), machine=machine)) is Verdict.PASS


def test_a_virtual_machine_may_have_a_topology_that_only_nccl_reads() -> None:
    host = healthy().host
    assert host is not None
    virtual = node(level("PIX"), host=replace(host, is_vm=True))
    assert verdict("POD-002", virtual) is Verdict.PASS


@pytest.mark.parametrize("value", ["LOC", "0", "00", "0x0"])
def test_the_level_of_the_device_itself_turns_gpudirect_off(value: str) -> None:
    assert observed("POD-002", node(level(value))) == [f"NCCL_NET_GDR_LEVEL={value} {OFF}"]


@pytest.mark.parametrize("value", ["NODE", "pix", " PIX", "PIX ", "-1", "x", "NET"])
def test_a_word_that_is_no_level_is_ignored_by_nccl(value: str) -> None:
    for name in ("NCCL_NET_GDR_LEVEL", "NCCL_P2P_LEVEL"):
        seen = observed("POD-002", node(level(value, name)))
        assert seen == [f"{name}={value}, which NCCL ignores"]


def test_without_c2c_the_hcas_of_a_grace_are_too_far() -> None:
    off = node(level("0", "NCCL_NET_GDR_C2C"), machine="gb200-nvl72")
    assert observed("POD-002", off) == [f"NCCL_NET_GDR_C2C=0 {OFF}: the nearest HCAs are at P2C"]
    wide = level("PHB", NCCL_NET_GDR_C2C="0")
    for one in (wide, level("1", "NCCL_NET_GDR_C2C"), level("WARN", "NCCL_DEBUG")):
        assert verdict("POD-002", node(one, machine="gb200-nvl72")) is Verdict.PASS
    assert verdict("POD-002", node(level("0", "NCCL_NET_GDR_C2C"))) is Verdict.PASS


def test_hcas_without_an_active_port_are_not_near() -> None:
    hcas = tuple(
        replace(hca, ports=tuple(replace(port, state="DOWN") for port in hca.ports))
        for hca in healthy().hcas or ()
    )
    assert verdict("POD-002", node(level("PIX"), hcas=hcas)) is Verdict.PASS


def test_another_topology_than_the_nodes_is_not_judged() -> None:
    own = level("PIX", NCCL_TOPO_FILE="/topo.xml")
    assert verdict("POD-002", node(own)) is Verdict.PASS


def test_gpudirect_that_the_driver_lacks_cannot_be_lost() -> None:
    closed = NvidiaDriver(peer_memory=False, is_open=False)
    assert verdict("POD-002", node(level("PIX"), nvidia=closed)) is Verdict.PASS


def test_what_the_way_to_the_hcas_depends_on_is_missing() -> None:
    assert missing("POD-002", node(level("PIX"), nvidia=None)) == (
        "whether HCAs can reach GPU memory",
    )
    whole = healthy()
    adrift = (replace(whole.gpus[0], path=None), *whole.gpus[1:])
    hcas = (replace((whole.hcas or ())[0], path=None), *(whole.hcas or ())[1:])
    partly = node(level("PIX"), gpus=adrift, hcas=hcas)
    assert missing("POD-002", partly) == ("place on the PCI bus of GPU0, mlx5_0",)
    assert verdict("POD-002", partly) is Verdict.UNKNOWN
    lost = (replace(whole.gpus[0], is_lost=True), *whole.gpus[1:])
    assert "place on the PCI bus of GPU0" in missing("POD-002", node(level("PIX"), gpus=lost))
    gpus = tuple(replace(gpu, virtualization=None) for gpu in whole.gpus)
    blind = node(level("PIX"), host=None, cpu=None, gpus=gpus)
    assert missing("POD-002", blind) == ("whether this is a virtual machine",)
    assert verdict("POD-002", node(level("PHB"), nvidia=None)) is Verdict.PASS
    assert verdict("POD-002", node(level("PIX"), nvidia=None, hcas=())) is Verdict.PASS


TURNED_AWAY = ({"NCCL_IB_DISABLE": "1"}, {"NCCL_IB_DISABLE": "2"}, {"NCCL_NET": "socket"})


@pytest.mark.parametrize("env", TURNED_AWAY)
def test_a_privileged_job_in_the_hosts_network_has_the_hosts_hcas(env: dict[str, str]) -> None:
    (seen,) = observed("POD-002", node(on_host(env)))
    assert seen.endswith("with RDMA devices")
    assert observed("POD-002", node(on_host({"NCCL_NET_GDR_LEVEL": "PIX"}))) != []


@pytest.mark.parametrize("env", TURNED_AWAY)
def test_other_pods_without_rdma_devices_have_none_to_lose(env: dict[str, str]) -> None:
    container = trainer(env=env, is_privileged=True)
    alone = pod(container, uses_host_network=True)
    apart = job(container)
    for one in (alone, apart, on_host(env, is_privileged=False)):
        assert verdict("POD-002", node(one)) is Verdict.PASS
    assert verdict("POD-002", node(on_host(env), hcas=())) is Verdict.PASS


@pytest.mark.parametrize(
    "env",
    [*TURNED_AWAY, {"NCCL_IB_GID_INDEX": "3"}, {"NCCL_NET_GDR_LEVEL": "PIX"}],
)
def test_the_hosts_hcas_are_missing_where_a_job_may_turn_from_them(env: dict[str, str]) -> None:
    assert missing("POD-002", node(on_host(env), hcas=None)) == ("HCAs",)
    assert verdict("POD-002", node(on_host({}), hcas=None)) is Verdict.PASS
    closed = on_host(env, is_privileged=False)
    assert verdict("POD-002", node(closed, hcas=None)) is Verdict.PASS


@pytest.mark.parametrize(
    ("value", "is_off"), [("1", False), ("", False), ("0", True), ("true", True), ("-0", True)]
)
def test_a_word_that_is_no_number_is_zero_to_nccl(value: str, *, is_off: bool) -> None:
    env = {"NCCL_DMABUF_ENABLE": value}
    snapshot = node(pod(trainer(RDMA, env=env)), kernel=Kernel(modules=()))
    assert bool(observed("POD-002", snapshot)) is is_off


def _roce(*indexes: int) -> tuple[Hca, ...]:
    """Return the HCAs of a machine with RoCE, the last of which has addresses at *indexes*."""
    *others, last = healthy(ROCE).hcas or ()
    gids = tuple(Gid(index=index, gid=f"{index:04}:{'0000:' * 6}0001") for index in indexes)
    ports = tuple(replace(port, gids=gids) for port in last.ports)
    return (*others, replace(last, ports=ports))


def at(index: str, hcas: tuple[Hca, ...], **env: str) -> Snapshot:
    return node(on_host({"NCCL_IB_GID_INDEX": index, **env}), machine=ROCE, hcas=hcas)


def test_an_index_without_an_address_is_found_in_the_hosts_network() -> None:
    last = _roce(0, 1)[-1]
    assert found("POD-002", at("3", _roce(0, 1))) == [
        (
            "ml/job-worker-1 container trainer",
            f"NCCL_IB_GID_INDEX=3, at which {last.name} port 1 has no address",
            "unset: NCCL finds the index itself since 2.21",
        )
    ]
    assert verdict("POD-002", at("1", _roce(0, 1))) is Verdict.PASS
    assert verdict("POD-002", at("-1", _roce(0, 1))) is Verdict.PASS
    assert verdict("POD-002", at("3", _roce())) is Verdict.PASS


def test_an_index_is_judged_on_the_ports_that_nccl_uses() -> None:
    hcas = _roce(0, 1)
    assert verdict("POD-002", at("3", hcas, NCCL_IB_HCA=f"^={hcas[-1].name}")) is Verdict.PASS
    assert verdict("POD-002", at("3", hcas, NCCL_NET_PLUGIN="spectrum-x")) is Verdict.PASS
    infiniband = node(on_host({"NCCL_IB_GID_INDEX": "3"}))
    assert verdict("POD-002", infiniband) is Verdict.PASS


def test_a_pod_in_a_network_of_its_own_may_have_addresses_of_its_own() -> None:
    own = pod(trainer(RDMA, env={"NCCL_IB_GID_INDEX": "9"}))
    assert verdict("POD-002", node(own, machine=ROCE)) is Verdict.PASS
    shared = replace(own, uses_host_network=True)
    assert verdict("POD-002", node(shared, machine=ROCE)) is Verdict.WARN


def switching(value: str, gpus: int = 8) -> Pod:
    return pod(trainer({"nvidia.com/gpu": gpus}, env={"NCCL_NVLS_ENABLE": value}))


@pytest.mark.parametrize("machine", ["dgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72"])
def test_nvswitches_that_reduce_are_a_loss(machine: str) -> None:
    assert observed("POD-002", node(switching("0", 4), machine=machine)) == [
        "NCCL_NVLS_ENABLE=0 keeps NCCL from reducing in the NVSwitches"
    ]
    assert verdict("POD-002", node(switching("1", 4), machine=machine)) is Verdict.PASS


def test_what_does_not_reduce_is_no_loss() -> None:
    for machine in ("dgx-a100", "dgx-1v", "h200-nvl-4", "l40s-pcie-4"):
        assert verdict("POD-002", node(switching("0", 4), machine=machine)) is Verdict.PASS
    assert verdict("POD-002", node(switching("0", 3))) is Verdict.WARN
    assert verdict("POD-002", node(switching("0", 2))) is Verdict.PASS
    assert verdict("POD-002", node(switching("0"), cuda_version=(12, 0))) is Verdict.PASS
    assert verdict("POD-002", node(switching("0"), cuda_version=(12, 1))) is Verdict.WARN


def test_memory_that_is_encrypted_cannot_be_reduced_in_the_switches() -> None:
    mode = ConfidentialCompute(is_enabled=True)
    assert verdict("POD-002", node(switching("0"), confidential_compute=mode)) is Verdict.PASS


def test_what_gpus_and_switches_can_is_missing_where_it_is_not_known() -> None:
    gpus = tuple(replace(gpu, compute_capability=None) for gpu in healthy().gpus)
    (needed,) = missing("POD-002", node(switching("0"), gpus=gpus))
    assert needed.startswith("compute capability of GPU0, GPU1")
    assert missing("POD-002", node(switching("0"), nvlinks=None)) == ("NVLinks",)
