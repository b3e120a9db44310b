"""The settings of our DRA driver; the switch for the driver is a setting of the GPUs."""

from dataclasses import dataclass

from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.kernel.settings import values
from nodetopo.kernel.settings.groups import DEVICES


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class DraSettings(GpuSettings):
    """The settings of the GPUs and of our driver."""

    dra_unhealthy: str = DEVICES.choice(
        "keep",  # as with a device plugin: only a person knows the value of the pod
        "what becomes of pods whose GPUs by claim turn unhealthy",
        "keep",
        "evict",
        is_live=True,
        before="mig_strategy",
    )
    dra_devices: str = DEVICES.choice(
        "auto",  # before 1.37 sets cost the scheduler time that grows by the square of the nodes
        "devices of the DRA driver, GPUs alone or also sets of them; auto: sets from Kubernetes "
        "1.37 on",
        "auto",
        "gpus",
        "sets",
        before="mig_strategy",
    )
    dra_set_sizes: tuple[int, ...] = DEVICES.setting(
        (),
        values.set_sizes,
        "numbers of GPUs in the sets of the DRA driver; auto: powers of two, and all",
        "LIST",
        before="mig_strategy",
    )
    dra_admin_devices: bool = DEVICES.switch(
        False,  # the scheduler evaluates selectors on each of them for every pod
        "publish for each GPU a device of the DRA driver for pods that monitor it by admin access",
        before="mig_strategy",
    )
