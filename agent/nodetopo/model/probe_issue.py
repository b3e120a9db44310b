"""A probe's report of what it could not read."""

import re
from collections.abc import Sequence

from msgspec import Struct

from nodetopo.model.numa import CpuSet
from nodetopo.model.pci import PciAddress

# "GPU3 nvmlDeviceGetNvLinkState links 0-3", "GPU1 GPU2 NVLink", "system nvmlSystemGetDriverVersion"
_SUBJECT = re.compile(
    r"(?P<device>system|GPU[0-9]{1,4}(?: GPU[0-9]{1,4})*)"
    r"(?: (?P<call>.+?)(?: links? [0-9,-]+)?)?",
    re.DOTALL,
)

GPUS = "gpus"
"""Subject of an issue about all GPUs of an imported file."""


class ProbeIssue(Struct, frozen=True, kw_only=True):
    """Something that could not be read, and so is ``None`` or missing in the snapshot.

    The subject of an issue with a device is its device and call; :meth:`of_call` writes it, and
    the properties below read it.
    """

    probe: str  # `nvml`, `pcie`, `numa`, `rdma`, `kubelet` …
    subject: str  # the device, call or file, e.g. `GPU3 nvmlDeviceGetMemoryInfo`
    reason: str  # what came back

    @classmethod
    def of_call(
        cls, device: str, call: str, reason: str, *, links: Sequence[int] = ()
    ) -> "ProbeIssue":
        """Return the issue of an NVML *call* about a *device*.

        Args:
            device: ``GPU3``, a pair ``GPU3 GPU4``, or ``system``.
            links: the NVLinks of the device that the issue is about; none means all of it.
        """
        named = f" link{'s' if len(links) > 1 else ''} {CpuSet.of(links)}" if links else ""
        return cls(probe="nvml", subject=f"{device} {call}{named}", reason=reason)

    @property
    def device(self) -> str | None:
        """``GPU3``, ``GPU3 GPU4`` or ``system``; ``None`` where the subject is no device."""
        match = _SUBJECT.fullmatch(self.subject)
        return match and match["device"]

    @property
    def gpus(self) -> tuple[int, ...]:
        """The indices of the GPUs that the subject names: none, one or a pair."""
        names = (self.device or "").split()
        return tuple(int(name.removeprefix("GPU")) for name in names if name != "system")

    @property
    def call(self) -> str:
        """What was asked about the device, such as ``nvmlDeviceGetMigMode``; empty without one."""
        match = _SUBJECT.fullmatch(self.subject)
        return (match and match["call"]) or ""

    @property
    def is_whole(self) -> bool:
        """Whether NVML as a whole did not answer, rather than one call about one device."""
        return self.probe == "nvml" and self.device is None

    @property
    def hides_gpus(self) -> bool:
        """Whether a node without GPUs might have some: NVML did not answer, or a file has none."""
        return self.is_whole or self.subject == GPUS

    @property
    def pci(self) -> PciAddress | None:
        """The PCI address that is the subject; ``None`` where it is something else."""
        return PciAddress.parse_or_none(self.subject)
