"""An HGX H100 board with a fault of each kind, in hardware that still answers.

Sources: as for DGX H100 (:mod:`tests.compose.h100_board`); what faults look like: NVIDIA GPU
Memory Error Management (row remapping failure), nvml.h (fabric states, recovery actions),
public `ibstat` of an H100 machine with ports down, kernel drivers/pci/pci-sysfs.c (a function
without a node prints -1 and every CPU). The faults are put together; no machine had them all:

- GPU2: error correction goes off at the next reset. GPU3: two of 18 NVLinks are down.
- GPU4: firmware names no NUMA node for its host bridge, and so none for its NIC either.
- GPU5: a row could not be remapped, uncorrectable errors, a reset is due.
- GPU6: 8 of 16 PCIe lanes. GPU7: still registering with the fabric.
- mlx5_1: port down. mlx5_2: port up, and no subnet manager. GPU1: ACS redirects on its switch.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from nodetopo.model.gpu import EccErrors, FabricState, Gpu, RemappedRows
from nodetopo.model.hca import Hca
from nodetopo.model.pci import IommuType, PcieLink
from nodetopo.model.probe_issue import ProbeIssue
from tests.compose import processors
from tests.compose.cards import SAPPHIRE_RAPIDS_PORT
from tests.compose.gpus import H100, LOCAL_FABRIC, gpus
from tests.compose.h100_board import LINKS_TO_EACH, nvswitches, rail
from tests.compose.hcas import CONNECTX_7, in_order, infiniband
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.parts import compose, console, nvswitch_addresses
from tests.compose.pci_tree import PciTree, build
from tests.compose.wiring import down, fabric, pairs

REDIRECT = 0x1D
"""ACS as the kernel turns it on: source validation, request and completion redirect, upstream
forwarding (drivers/pci/pci.c, pci_std_enable_acs)."""

NARROW = PcieLink(generation=5, width=8, max_generation=5, max_width=16)
STATES = {1: "DOWN", 2: "INIT"}
"""Of the ports of HCAs by number; the others are up."""

RESET = 1
"""nvmlDeviceGpuRecoveryAction_t."""


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.XEON_8480C, sockets=2, memory_mib=1_031_000)
    tree = build(
        cpus,
        console(nvswitches(), model=SAPPHIRE_RAPIDS_PORT),
        rail(0),
        rail(1, acs=REDIRECT),
        rail(2),
        rail(3),
        rail(4, has_node=False),
        rail(5),
        rail(6, gpu=replace(H100.card, link=NARROW)),
        rail(7),
        iommu=IommuType.IDENTITY,
    )
    found = _spoilt(gpus(H100, tree, cpus, series=0xBAD, fabric=LOCAL_FABRIC))
    wired = fabric(found, nvswitch_addresses(tree), LINKS_TO_EACH, version=4)
    nvlinks = down(wired, (3, 4), (3, 17))
    return compose(
        shape="h100x8-nvswitch-2numa-broken",
        name=None,
        product_name="DGXH100",
        description="8x H100 SXM with faults: NVLinks, memory, PCIe lanes, fabric, ports, ACS",
        sources=(
            "NVIDIA DGX H100/H200 User Guide: hardware overview and system topology",
            "NVIDIA GPU Memory Error Management: row remapping",
            "`ibstat` of an H100 machine with ports down: leptonai/gpud, infiniband/testdata",
            "kernel drivers/pci/pci-sysfs.c: NUMA node and CPUs of a function without a node",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks),
        hcas=in_order(*(_hca(number, tree) for number in range(8))),
        issues=(
            ProbeIssue(
                probe="nvml",
                subject="GPU3 NVLink",
                reason="links up to the NVSwitches: 16, other GPUs have 18",
            ),
        ),
    )


def _spoilt(found: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs with what NVML says of their faults."""
    spoilt = list(found)
    spoilt[2] = replace(found[2], ecc_pending=False)
    spoilt[5] = replace(
        found[5],
        remapped_rows=RemappedRows(
            correctable=1, uncorrectable=2, is_pending=False, has_failed=True
        ),
        ecc_errors=EccErrors(volatile=3, aggregate=11),
        recovery_action=RESET,
    )
    spoilt[7] = replace(found[7], fabric=replace(LOCAL_FABRIC, state=FabricState.IN_PROGRESS))
    return tuple(spoilt)


def _hca(number: int, tree: PciTree) -> Hca:
    state = STATES.get(number, "ACTIVE")
    place = tree[f"nic{number}"]
    netdev = f"ib{number}"
    hca = infiniband(f"mlx5_{number}", place, CONNECTX_7, number=number, netdev=netdev, state=state)
    if state != "INIT":
        return hca
    # The link trains without a subnet manager; what is missing then is the LID.
    return replace(hca, ports=(replace(hca.ports[0], physical_state="LinkUp"),))
