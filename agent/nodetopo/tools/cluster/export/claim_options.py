"""The user's choices about claims."""

from dataclasses import dataclass

from nodetopo.components.labels.rules import DEFAULT_PREFIX
from nodetopo.model.dra import DRIVER, NVIDIA_DRIVER
from nodetopo.tools.cluster.export.offered import Drivers
from nodetopo.tools.cluster.export.record import CLAIM_FORMS, DEFAULT_NAME

SINGLES, SETS = f"gpu.{DRIVER}", f"gpus.{DRIVER}"
"""The DeviceClasses of our driver: a device of the second is a set of GPUs."""

PLAIN = CLAIM_FORMS[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """The user's choices about claims.

    Attributes:
        name: begins the name of every object.
        prefix: of our annotations.
        form: one of :data:`CLAIM_FORMS`.
        sizes: GPUs of a claim; empty for 1, 2, 4, 8 and so on, and the whole node.
        driver: of the claimed GPUs.
        device_class: of the GPUs; ``None`` for the driver's default.
        nic_driver: of the NICs in each claim; ``None`` for no NICs.
        cpu_driver: of the CPUs in each claim; ``None`` for no CPUs.
        cpus: CPUs for each GPU.
        namespace: of the templates; ``None`` for the client's own.
        release: of the cluster; ``None`` if unknown.
    """

    name: str = DEFAULT_NAME
    prefix: str = DEFAULT_PREFIX
    form: str = CLAIM_FORMS[0]
    sizes: tuple[int, ...] = ()
    driver: str = NVIDIA_DRIVER
    device_class: str | None = None
    nic_driver: str | None = None
    cpu_driver: str | None = None
    cpus: int = 8
    namespace: str | None = None
    release: tuple[int, int] | None = None

    @property
    def drivers(self) -> Drivers:
        """Whose devices are claimed."""
        return Drivers(gpus=self.driver, nics=self.nic_driver, cpus=self.cpu_driver)

    @property
    def gpu_class(self) -> str:
        """The DeviceClass of single GPUs."""
        return self.device_class or (SINGLES if self.driver == DRIVER else self.driver)

    @property
    def nic_class(self) -> str:
        """The DeviceClass of RDMA NICs, which dranet leaves to the cluster's operator."""
        return f"{self.name}-nic"
