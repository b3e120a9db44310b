"""Recovery actions requested by the driver: NVML field 230, the vendor's verdict on a GPU.

Numbers: nvml.h ``nvmlDeviceGpuRecoveryAction_t``, 6 and 7 from cuda-python's bindings of a newer
header. Meanings: NVIDIA GPU Memory Error Management, "Error recovery and response flags".
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from nodetopo.model.gpu_health import HealthClass

NONE = 0
"""New work can start at once."""


class RecoveryAction(Struct, frozen=True, kw_only=True):
    """A recovery action that the driver can request."""

    number: int
    reason: str  # CamelCase, as :attr:`nodetopo.model.gpu_health.GpuHealth.reason`
    said: str  # the rest of a sentence that begins "the driver asks"
    kind: HealthClass


ACTIONS: Mapping[int, RecoveryAction] = MappingProxyType(
    {
        action.number: action
        for action in (
            RecoveryAction(
                number=1,
                reason="ResetRequired",
                said="for a reset of the GPU",
                kind=HealthClass.RESET,
            ),
            RecoveryAction(
                number=2,
                reason="RebootRequired",
                said="for a reboot of the node",
                kind=HealthClass.REBOOT,
            ),
            # Once peer traffic has ended the driver names another action; new work with peer
            # traffic would keep that from happening, so that the GPU takes none.
            RecoveryAction(
                number=3,
                reason="DrainPeersRequired",
                said="that all work with peer-to-peer traffic ends",
                kind=HealthClass.RESET,
            ),
            RecoveryAction(
                number=4,
                reason="DrainAndResetRequired",
                said="that peer-to-peer traffic ends, then for a reset of the GPU",
                kind=HealthClass.RESET,
            ),
            # The domain between nodes is at fault; work inside the node is not touched.
            RecoveryAction(
                number=5,
                reason="ImexRecoveryRequired",
                said="for a recovery of the IMEX domain",
                kind=HealthClass.DEGRADED,
            ),
            RecoveryAction(
                number=6,
                reason="BusResetRequired",
                said="for a reset of the GPU's PCIe bus",
                kind=HealthClass.RESET,
            ),
            RecoveryAction(
                number=7,
                reason="RebootRequired",
                said="for a reboot of the system",
                kind=HealthClass.REBOOT,
            ),
        )
    }
)
"""By number; 0 requests nothing."""


def recovery_action(number: int) -> RecoveryAction:
    """Return the action *number*, 1 or more; an unknown one only degrades."""
    return ACTIONS.get(number) or RecoveryAction(
        number=number,
        reason="UnknownRecoveryRequired",
        said=f"for recovery action {number}, which this version does not know",
        kind=HealthClass.DEGRADED,
    )
