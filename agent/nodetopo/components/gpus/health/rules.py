"""How GPUs are judged: the numbers of the protocol, and an operator's own classes."""

from collections.abc import Mapping

from msgspec import Struct, field

from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.xid import xid


class HealthRules(Struct, frozen=True, kw_only=True):
    """All that can be tuned; times in seconds."""

    # An operator's class for single XIDs, before the table's; ``app`` ignores one.
    classes: Mapping[int, HealthClass] = field(default_factory=dict)
    recovery_s: float = 60.0  # how long evidence must hold before an Unhealthy GPU is Healthy again
    # How long a GPU that an XID degraded stays so after the last one; also the time in which
    # application faults are counted as repeated.
    degraded_s: float = 3600.0
    # That many application faults of :data:`nodetopo.model.xid.REPEATED` within *degraded_s*
    # degrade the GPU.
    repeats: int = 5
    dedupe_s: float = 60.0  # within it the same XID of the same GPU is one occurrence
    flaps: int = 3  # a GPU that turned Unhealthy so often within *flap_s* stays so
    flap_s: float = 24 * 3600.0
    unanswered: int = 3  # scans in a row that NVML left unanswered make all GPUs Unhealthy
    # The same, by time, while a call is stuck and no new one is tried.
    unresponsive_s: float = 180.0
    # How long GPUs stay as they were while NVML gives no reading for another reason, which is
    # mostly the agent's container and not the GPUs.
    no_reading_s: float = 600.0
    fresh_after_s: float = 120.0  # how long NVML refuses before a fresh container is worth a try
    fresh_every_s: float = 3600.0  # between two such tries
    back_s: float = 5.0  # how long NVML must give readings before GPUs are Healthy again

    def kind_of(self, code: int) -> HealthClass:
        """Return the class of XID *code*: the operator's, else the table's."""
        return self.classes.get(code) or xid(code).kind
