"""The reasons of ``/readyz``: what each means and what to do; data alone.

Texts are Markdown with links as on ``docs/operate/runbook.md``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadinessReason:
    """A reason that keeps the node's GPUs from pods, as ``/readyz`` begins a line."""

    name: str
    meaning: str
    cure: str


READINESS = (
    ReadinessReason(
        "NotScanned",
        "The daemon hasn't read the node yet.",
        "Wait. If it lasts, read the log.",
    ),
    ReadinessReason(
        "NotRegistered",
        "The kubelet doesn't have the resource, still has an old socket of it, or lists none of "
        "its devices as allocatable.",
        "Check that the kubelet runs. The log has the error, as a warning after a minute. If "
        "`kubelet.sock` was removed, restart the kubelet; pods get GPUs meanwhile.",
    ),
    ReadinessReason(
        "DriverPaused",
        "A label of the Node asks for a free driver, for an upgrade or a MIG change. NVML stays "
        "closed until the label changes; the daemon keeps serving the devices that it knew.",
        "Wait for the GPU Operator. If it lasts, see "
        "[NodetopoDriverPaused](#nodetopodriverpaused).",
    ),
    ReadinessReason(
        "GpusMissing",
        "NVML answers but lists none of the GPUs on the PCI bus that are bound to `nvidia`.",
        "See [GpuMissing](#gpumissing).",
    ),
    ReadinessReason(
        "ResourceConflict",
        "Another device plugin serves the resource.",
        "[Remove one of the two](#two-plugins-for-one-resource).",
    ),
    ReadinessReason(
        "NotOffered",
        "The GPUs don't fit the settings. The line names the setting and the GPUs.",
        "Usually, correct `mig-strategy` or the MIG layout.",
    ),
    ReadinessReason(
        "NoHandOver",
        "With `device-list-strategy: auto`, CDI and NVIDIA's container toolkit both fail to bring "
        "GPUs into containers. The line names the obstacle.",
        "Write a CDI specification (`cdi-spec: write`, or `nvidia-ctk cdi generate`) and enable "
        "CDI "
        "in the container runtime, or change the toolkit's configuration "
        "([device hand-over](configuration.md#device-hand-over)).",
    ),
    ReadinessReason(
        "CdiNotWritten",
        "With `cdi-spec: write`, containers couldn't use the GPUs. The line names the missing "
        "files "
        "and tells whether the previous specification is still in use.",
        "Follow the line. Usually, correct `driver-root` or `dev-root`, or mount a directory that "
        "the daemon can't see ([allocate.md](../reference/allocate.md#the-cdi-specification)).",
    ),
    ReadinessReason(
        "DraNotServed",
        "With `dra`, the kubelet doesn't have nodetopo's DRA driver, hasn't reported which GPUs "
        "pods have, or the ResourceSlices couldn't be written. The line has the reason.",
        "Check that the kubelet runs, that `plugins_registry` is mounted, and the rights of the "
        "service account ([DRA](dra.md#our-driver)).",
    ),
    ReadinessReason(
        "NvmlUnresponsive",
        "The driver doesn't answer.",
        "Read `dmesg` on the node. Usually, the node needs a reboot.",
    ),
    ReadinessReason(
        "NvmlVersionMismatch",
        "The kernel module and the driver's library have different versions.",
        "Finish the driver upgrade, or reboot the node.",
    ),
    ReadinessReason(
        "NvmlRefuses",
        "NVML returns an error code.",
        "See the code in the line. Code 999 after `systemctl daemon-reload` ends with a new "
        "container, which the daemon requests itself.",
    ),
    ReadinessReason(
        "NvmlDied",
        "The process that calls NVML crashes.",
        "Read the log. Driver and library of different versions can cause this.",
    ),
    ReadinessReason(
        "NvmlLibraryGone",
        "The PCI bus shows GPUs, but `libnvidia-ml.so.1` is missing.",
        "Install the driver, or run the pod with NVIDIA's container runtime.",
    ),
)
