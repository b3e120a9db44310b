"""The settings of our DRA driver; the switch for the driver is a setting of the GPUs."""

from dataclasses import dataclass

from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.kernel.settings import values
from nodetopo.kernel.settings.groups import DEVICES


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class DraSettings(GpuSettings):
    """The settings of the GPUs and of our driver."""

    dra_unhealthy: str = DEVICES(
        "keep",  # as with a device plugin: only a person knows the value of the pod
        "what to do with pods whose claimed GPUs become unhealthy",
        "keep",
        "evict",
        is_live=True,
        before="mig_strategy",
    )
    dra_devices: str = DEVICES(
        "auto",  # before 1.37 sets cost the scheduler time that grows by the square of the nodes
        "devices of the DRA driver, single GPUs or also sets; auto: sets from Kubernetes 1.37",
        "auto",
        "gpus",
        "sets",
        before="mig_strategy",
    )
    dra_set_sizes: tuple[int, ...] = DEVICES(
        (),
        "sizes of the DRA driver's sets of GPUs; auto: powers of two, and all GPUs",
        values.set_sizes,
        "LIST",
        before="mig_strategy",
    )
    dra_admin_devices: bool = DEVICES(
        False,  # the scheduler evaluates selectors on each of them for every pod
        "also publish a device for each GPU for pods that monitor it with admin access",
        before="mig_strategy",
    )
