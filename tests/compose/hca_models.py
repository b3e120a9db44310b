"""Adapters that machines have, by product.

PCI ids: pci.ids; `hca_type`, `board_id` and rates: public `ibstat`, `ibv_devinfo` and sysfs
listings. Firmware versions and GUIDs are invented.
"""

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.pci import PciFunction
from tests.compose.cards import card, link

INFINIBAND, ETHERNET = "020700", "020000"
"""Classes of HCAs (PCI-SIG class codes): a Mellanox function has that of its port's layer."""


class HcaModel(Struct, frozen=True, kw_only=True):
    """One adapter.

    Attributes:
        oui: the first four bytes of its GUIDs, as sysfs groups them.
    """

    card: PciFunction
    hca_type: str | None
    board_id: str | None
    firmware: str
    rate_gbps: float
    oui: str = "a088:c203"


def _mlx5(ids: str, generation: int, width: int = 16) -> PciFunction:
    pcie = link(generation, width)
    return card(ids, INFINIBAND, pcie, driver="mlx5_core", max_read_request=4096)


CONNECTX_4 = HcaModel(
    card=_mlx5("15b3:1013:15b3:0033", 3),
    hca_type="MT4115",
    board_id="MT_2180110032",
    firmware="12.28.1002",
    rate_gbps=100.0,
    oui="506b:4b03",
)
CONNECTX_5 = HcaModel(
    card=_mlx5("15b3:1019:15b3:0050", 3),
    hca_type="MT4121",
    board_id="MT_0000000008",
    firmware="16.35.3006",
    rate_gbps=100.0,
    oui="b859:9f03",
)
CONNECTX_6 = HcaModel(
    card=_mlx5("15b3:101b:15b3:0007", 4),
    hca_type="MT4123",
    board_id="MT_0000000223",
    firmware="20.39.3004",
    rate_gbps=200.0,
    oui="0c42:a103",
)
CONNECTX_7 = HcaModel(
    card=_mlx5("15b3:1021:15b3:0023", 5),
    hca_type="MT4129",
    board_id="MT_0000000838",
    firmware="28.39.1002",
    rate_gbps=400.0,
)
MANAGEMENT_CONNECTX_7 = HcaModel(
    card=_mlx5("15b3:1021:15b3:0023", 5, 2),
    hca_type="MT4129",
    board_id="MT_0000001163",
    firmware="28.44.2524",
    rate_gbps=400.0,
    oui="7c8c:0903",
)
"""Built into HGX B200 boards: the way to their NVSwitches."""

CONNECTX_8 = HcaModel(
    card=_mlx5("15b3:1023:15b3:0039", 6),
    hca_type="MT4131",
    board_id="MT_0000001222",
    firmware="40.45.1200",
    rate_gbps=800.0,
)
BLUEFIELD_3 = HcaModel(
    card=_mlx5("15b3:a2dc:15b3:0051", 5),
    hca_type="MT41692",
    board_id="MT_0000001070",
    firmware="32.43.1014",
    rate_gbps=200.0,
    oui="c470:bd03",
)
EFA_2 = HcaModel(
    card=card("1d0f:efa2:1d0f:efa2", ETHERNET, link(4), driver="efa"),
    hca_type=None,
    board_id=None,
    firmware="0.0.0.0",
    rate_gbps=100.0,
)
VIRTUAL_FUNCTION = card(
    "15b3:101e:15b3:0023",
    ETHERNET,
    link(5),
    driver="mlx5_core",
    max_read_request=4096,
    is_virtual=True,
)
"""Any mlx5 virtual function from ConnectX-5 on (pci.ids: ConnectX Family mlx5Gen VF)."""

DATA_DIRECT = card("15b3:2100:15b3:0039", "080100", link(6), driver="mlx5_core")
"""The DMA controller that a ConnectX-8 shows on the GPU's side."""


def on_ethernet(model: HcaModel) -> PciFunction:
    """Return the card of *model* with its ports set to Ethernet, which changes its class."""
    return replace(model.card, pci_class=ETHERNET)


def guid(model: HcaModel, number: int) -> str:
    """Return an invented node GUID."""
    return f"{model.oui}:00{number:02x}:0000"
