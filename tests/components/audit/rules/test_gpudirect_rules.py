"""The rules on RDMA to GPU memory: peermem or dma-buf, driver parameters, GDRCopy."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.gpu import ConfidentialCompute, Fabric, FabricState, NvidiaDriver
from nodetopo.model.pci import IommuType
from nodetopo.model.snapshot import Kernel, Snapshot
from tests.components.audit.judge import HOST, healthy, result, with_gpu

OPEN = NvidiaDriver(is_open=True, peer_memory=False, parameters={})
CLOSED = replace(OPEN, is_open=False)
NEW, OLD = Kernel(release="6.8.0-60-generic"), Kernel(release="5.4.0-80-generic")
SOURCE = "/proc/driver/nvidia/params"


def node(driver: NvidiaDriver, kernel: Kernel = NEW, name: str = "dgx-h100") -> Snapshot:
    return replace(healthy(name), nvidia=driver, kernel=kernel)


@pytest.mark.parametrize(
    "driver",
    [
        OPEN,  # dma-buf
        replace(CLOSED, peer_memory=True),
        NvidiaDriver(peer_memory=True),  # then nothing else matters
    ],
)
def test_one_way_to_gpu_memory_is_enough(driver: NvidiaDriver) -> None:
    assert result("GDR-001", node(driver)).verdict is Verdict.PASS


def test_neither_way_fails_and_says_what_is_in_the_way() -> None:
    found = result("GDR-001", replace(node(CLOSED, OLD, "dgx-1v"), cuda_version=(11, 4)))
    assert (found.verdict, found.findings) == (
        Verdict.FAIL,
        (
            Finding(
                subject="NVIDIA driver",
                observed="no nvidia_peermem, and no dma-buf: kernel 5.4 is older than 5.12, the "
                "kernel module is the closed one, the driver is older than CUDA 11.7, a GPU is "
                "older than Turing",
                expected="one of the two",
            ),
        ),
    )


@pytest.mark.parametrize(
    ("snapshot", "missing"),
    [
        (
            node(replace(CLOSED, peer_memory=None)),
            "whether nvidia_peermem is loaded",
        ),
        (node(replace(OPEN, is_open=None)), "kind of kernel module"),
        (node(OPEN, Kernel(release="unreadable")), "kernel release"),
        (replace(node(OPEN), cuda_version=None), "CUDA version"),
        (
            with_gpu(node(OPEN), 3, lambda gpu: replace(gpu, compute_capability=None)),
            "compute capability of GPU3",
        ),
        (replace(node(OPEN), hcas=None), "HCAs"),
    ],
)
def test_what_decides_and_is_not_known_is_named(snapshot: Snapshot, missing: str) -> None:
    found = result("GDR-001", snapshot)
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, (missing,))


def test_nodes_without_use_for_it_are_passed_over() -> None:
    whole = node(CLOSED)
    efa = tuple(
        replace(hca, function=hca.function and replace(hca.function, driver="efa"))
        for hca in whole.hcas or ()
    )
    secret = ConfidentialCompute(is_enabled=True)
    assert [
        result("GDR-001", it).skipped
        for it in (
            replace(whole, hcas=()),
            replace(whole, hcas=efa),
            replace(whole, confidential_compute=secret),
        )
    ] == ["no RDMA device", "EFA, whose driver has its own mechanism", "confidential computing"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("NvLinkDisable", "1", "0"),
        ("RmNvlinkBandwidth", "HALF", "FULL"),
        ("RmNvlinkBandwidthLinkCount", "9", "0"),
        ("EnableMSI", "0", "1"),
    ],
)
def test_a_parameter_that_costs_bandwidth_is_a_warning(
    name: str, value: str, expected: str
) -> None:
    found = result("GDR-002", node(replace(OPEN, parameters={name: value})))
    assert (found.verdict, found.findings) == (
        Verdict.WARN,
        (Finding(subject=f"NVreg_{name} in {SOURCE}", observed=value, expected=expected),),
    )


@pytest.mark.parametrize("source", ["RegistryDwords", "RegistryDwordsPerDevice"])
def test_a_parameter_in_a_list_of_overrides_counts_too(source: str) -> None:
    parameters = {"NvLinkDisable": "0", source: "pci=0000:1b:00.0;NvLinkDisable=1;EnableMSI=1"}
    found = result("GDR-002", node(replace(OPEN, parameters=parameters)))
    assert [it.subject for it in found.findings] == [f"NVreg_NvLinkDisable in {SOURCE}"]


def test_defaults_and_parameters_that_cost_nothing_pass() -> None:
    parameters = {
        "NvLinkDisable": "0",
        "RmNvlinkBandwidth": "",
        "RmNvlinkBandwidthLinkCount": "0",
        "EnableMSI": "1",
        "DmaRemapPeerMmio": "0",
        "ImexChannelCount": "0",
        "RegistryDwords": "",
        "EnableGpuFirmware": "18",
    }
    assert result("GDR-002", node(replace(OPEN, parameters=parameters))).findings == ()


def test_unmapped_peers_cost_where_an_iommu_translates() -> None:
    driver = replace(OPEN, parameters={"DmaRemapPeerMmio": "0"})
    translated = with_gpu(
        node(driver),
        0,
        lambda gpu: replace(
            gpu, function=gpu.function and replace(gpu.function, iommu_type=IommuType.DMA)
        ),
    )
    assert len(result("GDR-002", translated).findings) == 1


def test_no_imex_channels_cost_where_nvlink_joins_nodes() -> None:
    driver = replace(OPEN, parameters={"ImexChannelCount": "0"})
    member = Fabric(
        state=FabricState.COMPLETED, cluster_uuid="6b0e1b2c-0000-4000-8000-000000000072"
    )
    board = with_gpu(node(driver), 0, lambda gpu: replace(gpu, fabric=member))
    assert result("GDR-002", board).findings == ()
    tray = with_gpu(board, 0, lambda gpu: replace(gpu, product="NVIDIA GB200"))
    assert len(result("GDR-002", tray).findings) == 1


@pytest.mark.parametrize("driver", [None, replace(OPEN, parameters=None)])
def test_unread_parameters_are_unknown(driver: NvidiaDriver | None) -> None:
    found = result("GDR-002", replace(healthy(), nvidia=driver))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("driver parameters",))


def test_a_node_without_gdrcopy_is_remarked_on() -> None:
    found = result("GDR-003", replace(healthy(), host=replace(HOST, gdrcopy=False)))
    assert (found.verdict, len(found.findings)) == (Verdict.PASS, 1)
    unseen = result("GDR-003", replace(healthy(), host=None))
    assert unseen.missing == ("whether gdrdrv is loaded",)
