"""All composed machines."""

from tests.compose import dgx_1v, dgx_h100, l40s_pcie_4
from tests.compose.machine import Machine


def machines() -> tuple[Machine, ...]:
    """Return them, the bundled default first."""
    return dgx_h100.machine(), dgx_1v.machine(), l40s_pcie_4.machine()
