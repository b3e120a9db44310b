"""Third-generation Xeon Scalable (Ice Lake-SP) with its root ports.

Sources: Intel ARK for Xeon Gold 6330 (28 cores, 42 MB), Gold 6338 (32 cores, 48 MB), Silver 4314
(16 cores, 24 MB); kernel arch/x86/include/asm/intel-family.h (model 0x6A); pci.ids 8086:347a.
"""

from msgspec.structs import replace

from tests.compose.cards import INTEL, link
from tests.compose.machine import Processor
from tests.compose.pci_tree import BridgeModel
from tests.compose.processors import XEON_8480C

XEON_6330: Processor = replace(
    XEON_8480C,
    model="Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz",
    model_number=106,
    stepping=6,
    cores=28,
    l2_kib=1280,
    l3_kib=43008,
    cores_per_l3=28,
)
XEON_6338 = replace(
    XEON_6330,
    model="Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz",
    cores=32,
    l3_kib=49152,
    cores_per_l3=32,
)
XEON_4314 = replace(
    XEON_6330,
    model="Intel(R) Xeon(R) Silver 4314 CPU @ 2.40GHz",
    mhz=2400,
    cores=16,
    l3_kib=24576,
    cores_per_l3=16,
)
ICE_LAKE_PORT = BridgeModel(vendor=INTEL, device="347a", link=link(4))
