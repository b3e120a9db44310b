"""GPU models, and the GPUs of a machine from where they are plugged in.

Product names, memory and compute capability: `nvidia-smi` outputs in public and NVIDIA's CUDA GPU
list; PCI ids: the supported-products list of the driver's README and public `lspci` listings.
Memory is what `nvmlDeviceGetMemoryInfo` calls total.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from nodetopo.model.gpu import (
    C2c,
    EccErrors,
    Fabric,
    FabricState,
    Gpu,
    Mig,
    RemappedRows,
    Virtualization,
)
from nodetopo.model.pci import PcieLink, PciFunction
from tests.compose.cards import card, link
from tests.compose.host import Host
from tests.compose.pci_tree import PciTree

CLASS_3D = "030200"
"""3D controller (PCI-SIG class codes); workstation cards are VGA, ``030000``."""

NO_REMAPPED_ROWS = RemappedRows(correctable=0, uncorrectable=0, is_pending=False, has_failed=False)
NO_ERRORS = EccErrors(volatile=0, aggregate=0)
IDLE = 1
"""nvmlClocksEventReasonGpuIdle (nvml.h): the clocks are low because there is no work."""

LOCAL_FABRIC = Fabric(state=FabricState.COMPLETED, status=0, clique_id=0, health_mask=0)
"""What an HGX board without a multi-node fabric reports: registered, cluster UUID all zero."""


class GpuModel(Struct, frozen=True, kw_only=True):
    """One GPU product.

    Attributes:
        card: as PCI sees it.
        is_module: a module on a baseboard, which has a place there (SXM), and no card.
        has_mig: whether it can be partitioned.
    """

    product: str
    architecture: str
    compute_capability: tuple[int, int]
    memory_mib: int
    card: PciFunction
    vbios: str
    is_module: bool = True
    has_mig: bool = True
    has_ecc: bool = True

    @property
    def remaps_rows(self) -> bool:
        """Whether bad memory is remapped by rows; older GPUs retire pages (R450 driver notes)."""
        return self.compute_capability >= (8, 0)


def _gpu_card(ids: str, pcie: PcieLink, pci_class: str = CLASS_3D) -> PciFunction:
    return card(ids, pci_class, pcie, driver="nvidia")


V100_SXM2 = GpuModel(
    product="Tesla V100-SXM2-32GB",
    architecture="volta",
    compute_capability=(7, 0),
    memory_mib=32768,
    card=_gpu_card("10de:1db5:10de:1249", link(3)),
    vbios="88.00.48.00.02",
    is_module=False,
    has_mig=False,
)
V100_SXM3 = GpuModel(
    product="Tesla V100-SXM3-32GB",
    architecture="volta",
    compute_capability=(7, 0),
    memory_mib=32768,
    card=_gpu_card("10de:1db8:10de:131d", link(3)),
    vbios="88.00.6B.00.01",
    is_module=False,
    has_mig=False,
)
A100_SXM4_40 = GpuModel(
    product="NVIDIA A100-SXM4-40GB",
    architecture="ampere",
    compute_capability=(8, 0),
    memory_mib=40960,
    card=_gpu_card("10de:20b0:10de:134f", link(4)),
    vbios="92.00.19.00.10",
)
A100_SXM4_80 = GpuModel(
    product="NVIDIA A100-SXM4-80GB",
    architecture="ampere",
    compute_capability=(8, 0),
    memory_mib=81920,
    card=_gpu_card("10de:20b2:10de:1463", link(4)),
    vbios="92.00.45.00.03",
)
L40S = GpuModel(
    product="NVIDIA L40S",
    architecture="ada-lovelace",
    compute_capability=(8, 9),
    memory_mib=46068,
    card=_gpu_card("10de:26b9:10de:1851", link(4)),
    vbios="95.02.66.00.02",
    is_module=False,
    has_mig=False,
)
H100 = GpuModel(
    product="NVIDIA H100 80GB HBM3",
    architecture="hopper",
    compute_capability=(9, 0),
    memory_mib=81559,
    card=_gpu_card("10de:2330:10de:16c1", link(5)),
    vbios="96.00.89.00.01",
)
B200 = GpuModel(
    product="NVIDIA B200",
    architecture="blackwell",
    compute_capability=(10, 0),
    memory_mib=183359,
    card=_gpu_card("10de:2901:10de:1999", link(5)),
    vbios="97.00.FA.00.09",
)
GB200 = GpuModel(
    product="NVIDIA GB200",
    architecture="blackwell",
    compute_capability=(10, 0),
    memory_mib=189471,
    card=_gpu_card("10de:2941:10de:2046", link(5)),
    vbios="97.00.B9.00.69",
)


def uuid(model: int, index: int) -> str:
    """Return an invented GPU UUID that tells where it was invented."""
    return f"GPU-{model:08x}-0000-4000-8000-{index:012x}"


def gpus(
    model: GpuModel,
    tree: PciTree,
    host: Host,
    *,
    series: int,
    prefix: str = "gpu",
    fabric: Fabric | None = None,
    c2c: C2c | None = None,
    memory_nodes: Sequence[int] | None = None,
    affinity: Mapping[int, tuple[int, ...]] | None = None,
    modules: Sequence[int] | None = None,
    virtualization: Virtualization = Virtualization.NONE,
) -> tuple[Gpu, ...]:
    """Return a GPU for each leaf ``<prefix><number>`` of *tree*, by PCI address.

    Args:
        model: of all of them.
        tree: where they are plugged in.
        host: whose CPUs are near them.
        series: told apart machines in the invented UUIDs and serial numbers.
        prefix: of the leaves' names.
        fabric: of all of them; ``None`` where NVLink does not reach an NVSwitch.
        c2c: of all of them, on Grace.
        memory_nodes: the NUMA node that each GPU's memory is, on Grace and POWER9.
        affinity: by GPU index, the NUMA nodes that NVML lists, where not the GPU's node alone.
        modules: place of each on the baseboard, where not in the order of the index.
        virtualization: how they reached the kernel.
    """
    places = sorted(tree.named(prefix), key=lambda place: place.pci)
    return tuple(
        Gpu(
            index=index,
            uuid=uuid(series, index),
            minor=index,
            pci=place.pci,
            path=place.path,
            function=place.function,
            product=model.product,
            architecture=model.architecture,
            compute_capability=model.compute_capability,
            memory_mib=model.memory_mib,
            serial=f"{1_650_000_000_000 + series * 1000 + index}",
            vbios=model.vbios,
            module_id=(modules[index] if modules else index + 1) if model.is_module else None,
            board_id=place.pci.bus << 8 | place.pci.domain << 16,
            numa_node=place.numa_node,
            numa_affinity=(affinity or {}).get(index, _own(place.numa_node)),
            memory_numa_node=None if memory_nodes is None else memory_nodes[index],
            cpu_affinity=host.cpus(place.numa_node),
            pcie=place.function.link,
            persistence=True,
            virtualization=virtualization,
            ecc=model.has_ecc or None,
            ecc_pending=model.has_ecc or None,
            ecc_errors=NO_ERRORS if model.has_ecc else None,
            mig=Mig(is_enabled=False, is_pending=False) if model.has_mig else None,
            fabric=fabric,
            c2c=c2c,
            remapped_rows=NO_REMAPPED_ROWS if model.remaps_rows else None,
            retired_pages_pending=None if model.remaps_rows or not model.has_ecc else False,
            recovery_action=0,
            throttle_reasons=IDLE,
        )
        for index, place in enumerate(places)
    )


def _own(node: int | None) -> tuple[int, ...] | None:
    return None if node is None else (node,)
