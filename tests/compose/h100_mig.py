"""An HGX H100 board with three GPUs in MIG mode and one that is going to be.

Sources: as for DGX H100 (:mod:`tests.compose.h100_board`); NVIDIA MIG User Guide (profiles, the
ids and places that `nvidia-smi mig -lgi` lists; no peer access between MIG devices over NVLink
or PCIe); `nvidia-smi -q` of an H100 in MIG mode in public (remapped rows N/A, fabric completed),
and its `nvidia-smi nvlink -s`: "Nvlink queries are not supported for Devices in MIG mode". So
NVML tells of no NVLink of those GPUs, and what is left between them and others is PCIe. No
`topo -m` of a board with some of its GPUs in MIG mode was found in public.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from nodetopo.model.gpu import Gpu, Mig
from nodetopo.model.nvlink import P2pStatus, PeerAccess
from nodetopo.model.pci import IommuType
from tests.compose import processors
from tests.compose.cards import SAPPHIRE_RAPIDS_PORT
from tests.compose.gpus import H100, LOCAL_FABRIC, gpus
from tests.compose.h100_board import LINKS_TO_EACH, nvswitches, rail
from tests.compose.hcas import CONNECTX_7, in_order, infiniband
from tests.compose.host import host
from tests.compose.machine import Machine
from tests.compose.mig import H100_80, partitioned
from tests.compose.parts import compose, console, nvswitch_addresses
from tests.compose.pci_tree import build
from tests.compose.wiring import Pair, fabric, pairs

SEVENTHS = [(7, 4), (8, 5), (9, 6), (10, 3), (11, 0), (12, 1), (13, 2)]
HALVES = [(1, 4), (2, 0)]
"""GPU instances: id and first slice of each 1g.10gb, and of each 3g.40gb."""

NO_ACCESS = PeerAccess(
    read=P2pStatus.NOT_SUPPORTED, write=P2pStatus.NOT_SUPPORTED, nvlink=P2pStatus.NOT_SUPPORTED
)


def machine() -> Machine:
    """Return the description."""
    cpus = host(processors.XEON_8480C, sockets=2, memory_mib=1_031_000)
    tree = build(
        cpus,
        console(nvswitches(), model=SAPPHIRE_RAPIDS_PORT),
        *(rail(index) for index in range(8)),
        iommu=IommuType.IDENTITY,
    )
    whole = gpus(H100, tree, cpus, series=0xD16, fabric=LOCAL_FABRIC)
    found = (
        _divided(whole[0], "1g.10gb", SEVENTHS),
        _divided(whole[1], "3g.40gb", HALVES),
        _divided(whole[2], "", []),
        replace(whole[3], mig=Mig(is_enabled=False, is_pending=True)),
        *whole[4:],
    )
    linked = [gpu for gpu in found if not gpu.is_divided]
    nvlinks = fabric(linked, nvswitch_addresses(tree), LINKS_TO_EACH, version=4)
    return compose(
        shape="h100x8-nvswitch-2numa-mig",
        name="hgx-h100-mig",
        product_name="DGXH100",
        description="8x H100 SXM, 3 of them in MIG mode: 7 instances, 2, and none",
        sources=(
            "NVIDIA DGX H100/H200 User Guide: hardware overview and system topology",
            "NVIDIA Multi-Instance GPU User Guide",
            "`nvidia-smi -q` and `nvlink -s` of H100 in MIG mode: utkuozdemir/nvidia_gpu_exporter",
        ),
        host=cpus,
        tree=tree,
        gpus=found,
        nvlinks=nvlinks,
        pairs=pairs(found, nvlinks, refused=_refused(found)),
        hcas=in_order(
            *(
                infiniband(f"mlx5_{at}", place, CONNECTX_7, number=at, netdev=f"ib{at}")
                for at, place in enumerate(tree.named("nic"))
            ),
        ),
    )


def _divided(gpu: Gpu, profile: str, instances: Sequence[tuple[int, int]]) -> Gpu:
    """Return *gpu* with an instance of *profile* for each (id, first slice)."""
    found = partitioned(gpu, H100_80, [(profile, start) for _, start in instances])
    assert found.mig is not None
    numbered = tuple(
        replace(instance, gpu_instance=number)
        for instance, (number, _) in zip(found.mig.instances, instances, strict=True)
    )
    return replace(found, mig=replace(found.mig, instances=numbered), remapped_rows=None)


def _refused(found: Sequence[Gpu]) -> dict[Pair, PeerAccess]:
    """Return that no GPU may reach into one in MIG mode, nor that one out of it."""
    return {
        (a.index, b.index): NO_ACCESS
        for a in found
        for b in found
        if a is not b and (a.is_divided or b.is_divided)
    }
