"""The user's choices about claims."""

from msgspec import Struct

from nodetopo.components.labels.rules import DEFAULT_PREFIX
from nodetopo.model.dra import DRIVER, NVIDIA_DRIVER
from nodetopo.tools.cluster.export.offered import Drivers
from nodetopo.tools.cluster.export.record import CLAIM_FORMS, DEFAULT_NAME

SINGLES, SETS = f"gpu.{DRIVER}", f"gpus.{DRIVER}"
"""The DeviceClasses of our driver: a device of the second is a set of GPUs."""

PLAIN = CLAIM_FORMS[1]


class ClaimOptions(Struct, frozen=True, kw_only=True):
    """The user's choices about claims."""

    name: str = DEFAULT_NAME  # begins the name of every object
    prefix: str = DEFAULT_PREFIX  # of our annotations
    form: str = CLAIM_FORMS[0]  # one of `CLAIM_FORMS`
    # GPUs of a claim; empty for 1, 2, 4, 8 and so on, and the whole node.
    sizes: tuple[int, ...] = ()
    driver: str = NVIDIA_DRIVER  # of the claimed GPUs
    device_class: str | None = None  # of the GPUs; None for the driver's default
    nic_driver: str | None = None  # None for no NICs in claims
    cpu_driver: str | None = None  # None for no CPUs in claims
    cpus: int = 8  # for each GPU
    namespace: str | None = None  # of the templates; None for the client's own
    release: tuple[int, int] | None = None  # of the cluster

    @property
    def drivers(self) -> Drivers:
        return Drivers(gpus=self.driver, nics=self.nic_driver, cpus=self.cpu_driver)

    @property
    def gpu_class(self) -> str:
        """The DeviceClass of single GPUs."""
        return self.device_class or (SINGLES if self.driver == DRIVER else self.driver)

    @property
    def nic_class(self) -> str:
        """The DeviceClass of RDMA NICs, which dranet leaves to the cluster's operator."""
        return f"{self.name}-nic"
