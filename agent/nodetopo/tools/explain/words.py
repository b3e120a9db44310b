"""Reasons of the kubelet, of health and of alignment, for a person; data alone.

Texts are Markdown with links as on ``docs/operate/runbook.md``. Words that the program itself
defines are named by its constants.
"""

from dataclasses import dataclass

from nodetopo.admission.errors import (
    SMT_ALIGNMENT_ERROR,
    TOPOLOGY_AFFINITY_ERROR,
    UNEXPECTED,
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its meaning and its cure.

    Attributes:
        aliases: other spellings, such as the beginning of a message.
        page: the document that has more, relative to ``docs/operate``; empty for none.
    """

    name: str
    meaning: str
    cure: str
    page: str = ""
    aliases: tuple[str, ...] = ()


_ADMIT = "`nodetopo admit --manifest pod.yaml` on the node names each change that makes the pod fit"

REJECTIONS = (
    Word(
        TOPOLOGY_AFFINITY_ERROR,
        "The Topology Manager, with the policy `restricted` or `single-numa-node`, found no NUMA "
        "nodes that satisfy all CPUs, memory and devices of the pod. The pod is Failed; the "
        "kubelet doesn't retry it, and every replacement pod can fail the same way.",
        f"{_ADMIT}: usually, request fewer GPUs or CPUs, or use the policy `best-effort` "
        "([KUB-003](../reference/checks.md#kub-003)).",
        "troubleshoot.md#topologyaffinityerror",
        ("Resources cannot be allocated with Topology locality",),
    ),
    Word(
        UNEXPECTED,
        "An allocation failed after the scheduler chose the node: a device plugin returned an "
        "error or was down, devices turned Unhealthy, or the CPU Manager or Memory Manager had "
        "too little left. The pod's message has the cause.",
        f"Read the message with `kubectl describe pod`. {_ADMIT}. If a device plugin was down, the "
        "controller's next pod works.",
        "troubleshoot.md#unexpectedadmissionerror",
        ("Allocate failed due to",),
    ),
    Word(
        SMT_ALIGNMENT_ERROR,
        "The CPU Manager's option `full-pcpus-only` is on, and the container requests a number of "
        "CPUs that isn't a multiple of the threads of a core, or too few whole cores are free.",
        f"Request a multiple of the threads per core, usually an even number. {_ADMIT}.",
        "../reference/admit.md",
    ),
    Word(
        "OutOfcpu",
        "When the pod reached the node, its CPU request exceeded the unreserved CPUs. The "
        "scheduler's view was older, or the pod was bound without the scheduler.",
        "Nothing: the controller creates another pod. If it repeats, look for a second scheduler "
        "or for pods with `nodeName`.",
        "../reference/admit.md",
    ),
    Word(
        "OutOfmemory",
        "When the pod reached the node, its memory request exceeded the unreserved memory.",
        "As for OutOfcpu.",
        "../reference/admit.md",
    ),
    Word(
        "OutOfpods",
        "The node already runs as many pods as the kubelet's `maxPods` allows.",
        "Use other nodes, or raise `maxPods`.",
    ),
    Word(
        "OutOf<resource>",
        "When the pod reached the node, it requested more of the resource than the node has "
        "allocatable, for example OutOfnvidia.com/gpu. Usually, a GPU turned Unhealthy, or "
        "another pod got it first.",
        "Compare `kubectl describe node` with `nodetopo health`: devices that are Unhealthy "
        "aren't allocatable.",
        "troubleshoot.md#a-gpu-is-unhealthy",
        ("OutOfnvidia.com/gpu", "OutOfExtendedResources"),
    ),
    Word(
        "NodeAffinity",
        "The Node's labels no longer match the pod's node selector or affinity, for example after "
        "a label of `gpu.topology/` changed between scheduling and admission.",
        "Compare the pod's selector with `nodetopo labels`.",
        "../reference/topology-labels.md",
    ),
)
"""``status.reason`` of a pod that the kubelet rejects (kubernetes 1.36 pkg/kubelet/lifecycle
predicate.go and pkg/kubelet/cm/admission/errors.go)."""

MESSAGES = (
    Word(
        "Insufficient <resource>",
        "The scheduler found no node with enough of the resource free. For nvidia.com/gpu: the "
        "GPUs are in use or Unhealthy, or no device plugin has registered the resource.",
        "`kubectl describe node` prints what is allocatable and allocated; `/readyz` of the node's "
        "agent has the reason if the resource is missing.",
        "troubleshoot.md#pods-stay-pending",
    ),
    Word(
        "unresolvable CDI devices",
        "The container runtime found no CDI specification with the device's name, so the container "
        "isn't created.",
        "`nodetopo audit --only runtime` names the missing devices. Write the specification again: "
        "`cdi-spec: write`, or `nvidia-ctk cdi generate`.",
        "troubleshoot.md#unknown-device",
        ("CDI device injection failed", "unresolvable"),
    ),
    Word(
        "unknown device",
        "NVIDIA's container library doesn't know the GPU or MIG device that the container should "
        "get: it disappeared, or the MIG layout changed after the kubelet allocated it.",
        "Compare `nvidia-smi -L` with the UUID in the message. Delete the pod; after a change of "
        "the MIG layout, the daemon advertises the new devices at its next scan.",
        "troubleshoot.md#unknown-device",
        ("device error", "nvidia-container-cli"),
    ),
    Word(
        "Failed to initialize NVML",
        "The process can't open the driver's device nodes. With \"Unknown Error\" (999) in a "
        "container that worked before, `systemctl daemon-reload` took the nodes from its cgroup.",
        "Recreate the pod. To avoid it, hand devices over by CDI "
        "([device hand-over](configuration.md#device-hand-over)).",
        "troubleshoot.md#unknown-device",
        ("NVML: Unknown Error", "999"),
    ),
)
"""Messages of the scheduler and of container runtimes, by their distinctive words."""

HEALTH = (
    Word(
        "GpuOffBus", "The GPU is gone from the PCI bus.", "Reboot the node.", "runbook.md#gpulost"
    ),
    Word(
        "GpuMissing",
        "NVML no longer lists the GPU.",
        "Reset the GPU, or reboot the node.",
        "runbook.md#gpumissing",
    ),
    Word("GpuLost", "The driver lost the GPU.", "Reboot the node.", "runbook.md#gpulost"),
    Word(
        "GpuUnavailable",
        "The driver reported the GPU as unavailable.",
        "Reset the GPU.",
        "health.md#classes",
    ),
    Word(
        "RowRemapFailed",
        "A memory row failed and no spare row was left.",
        "Have the GPU replaced.",
        "runbook.md#gpurowremapfailed",
    ),
    Word(
        "RowRemapPending",
        "A memory row waits for a reset to be remapped.",
        "Reset the GPU when it is idle.",
        "runbook.md#gpurowremappending",
    ),
    Word(
        "PageRetirementPending",
        "Memory pages wait for a reset to be retired.",
        "Reset the GPU when it is idle.",
        "runbook.md#gpudegraded",
    ),
    Word(
        "SramThresholdExceeded",
        "The GPU's SRAM had more uncorrectable errors than NVIDIA's threshold for an RMA.",
        "Have the GPU replaced.",
        "runbook.md#gpusramthresholdexceeded",
    ),
    Word(
        "NvLinksDown",
        "Fewer NVLinks of the GPU are up than earlier in this boot.",
        "Reset all GPUs of the board together, or reboot.",
        "runbook.md#gpunvlinkdown",
    ),
    Word(
        "PcieLanesMissing",
        "The GPU's PCIe link trained to fewer lanes than both ends have.",
        "Reseat the GPU; check riser and cable.",
        "runbook.md#gpupciewidthreduced",
    ),
    Word(
        "Flapping",
        "The GPU turned Unhealthy three times within 24 hours, and stays Unhealthy until a boot.",
        "Drain and reboot the node, or clear the GPU.",
        "runbook.md#gpuflapping",
    ),
    Word(
        "HealthNotKnown",
        "The health file was damaged, so earlier verdicts are lost. The GPU is Unhealthy until it "
        "has looked sound for `recovery`.",
        "Wait; find the program that wrote the health file.",
        "health.md#the-protocol",
    ),
    Word(
        "UnknownRecoveryRequired",
        "The driver requests a recovery action that this release doesn't know.",
        "Read the number in the message; update nodetopo.",
        "health.md#recovery-actions",
    ),
    Word(
        "Xid<code>",
        "The GPU reported this XID. With `Repeated` at its end: several times within an hour.",
        "`nodetopo explain xid CODE` has the meaning and the class.",
        "health.md#xids",
    ),
    Word(
        "XidOther",
        "The GPU reported XIDs of so many codes that they are counted together.",
        "Read `dmesg` on the node.",
        "health.md#xids",
    ),
)
"""Reasons of a verdict on a GPU; recovery actions and NVML's have their own tables."""

HCA_HEALTH = (
    Word(
        "HcaLinkDown",
        "no port is ACTIVE",
        "check cable, transceiver and switch port; for InfiniBand the subnet manager, if the port "
        "stays INIT; for RoCE the interface, if it isn't up",
    ),
    Word(
        "HcaFirmwareError",
        "reading the state of its ports fails with EIO, ENXIO, ETIMEDOUT or EREMOTEIO",
        "read `dmesg` and `devlink health`; reset the firmware, or reboot",
    ),
    Word(
        "HcaLost",
        "its PCI function isn't on the bus",
        "read `dmesg` and `lspci`; reboot. If virtual functions were removed on purpose, restart "
        "the daemon to forget them",
    ),
    Word("HcaUnbound", "its PCI function has no driver", "bind the driver again"),
    Word(
        "HcaGone",
        "its driver has no RDMA device for it",
        "load the RDMA part of the driver (`mlx5_ib`); `devlink dev param show` has `enable_rdma`",
    ),
    Word(
        "HcaMoved",
        "its driver has no RDMA device for it, and each RDMA device belongs to one network "
        "namespace (`rdma system` prints `exclusive`)",
        "nothing if a pod has it: it returns when the pod ends",
    ),
    Word(
        "HcaMissing",
        "it isn't listed and has no PCI function, as with software devices",
        "add it again",
    ),
)
"""Reasons of a verdict on an HCA."""

CAUSES = (
    Word(
        "shared-cpus",
        "The container has no exclusive CPUs: the pod isn't Guaranteed (QOS-001), or doesn't "
        "request a whole number of CPUs (QOS-002).",
        "Make the pod Guaranteed, with a whole number of CPUs.",
    ),
    Word(
        "by-claim",
        "The GPUs come from a ResourceClaim, which the Topology Manager doesn't see: CPUs and "
        "memory were chosen without them.",
        "Request GPUs by count, or by a claim with CPUs ([claims.md](claims.md)).",
    ),
    Word(
        "device-without-node",
        "A device plugin reported no NUMA node for its device to the kubelet.",
        "Update the plugin, or replace it ([rdma.md](rdma.md)).",
    ),
    Word(
        "packed",
        "The CPUs fit on fewer NUMA nodes than the GPUs need, and the CPU Manager takes as few as "
        "it can.",
        "Set the CPU Manager's option `distribute-cpus-across-numa`.",
    ),
    Word(
        "fragmented",
        "The policy `best-effort` admitted the pod although no NUMA node had enough left.",
        "Use `restricted` to reject such pods, or `nodetopo simulate trace` to compare policies.",
    ),
    Word(
        "unexplained",
        "With today's settings the kubelet wouldn't place the container like this: the settings "
        "changed since, or another program changed its cgroup.",
        "Recreate the pod.",
    ),
    Word(
        "unknown-policy",
        "The Topology Manager's policy isn't known.",
        "Give the daemon access to the kubelet's settings (component `kubelet-config`).",
    ),
)
"""Causes of measured misalignment that no check explains."""

VERDICTS = (
    Word(
        "aligned",
        "GPUs, CPUs, memory and HCAs of the container are on the same NUMA nodes, as far as the "
        "machine allows.",
        "Nothing.",
    ),
    Word(
        "misaligned",
        "CPUs, memory or HCAs of the container are on other NUMA nodes than its GPUs, or the GPUs "
        "are on more NUMA nodes than necessary.",
        "See the causes in the same row of `nodetopo audit`.",
    ),
)
"""Verdicts of measured alignment."""

TAINTS = (
    Word(
        "nodetopo.io/unhealthy",
        "A GPU of the device isn't Healthy; the value is the reason.",
        "As for the reason. `dra-unhealthy` sets the effect on running pods.",
    ),
    Word(
        "nodetopo.io/held",
        "A pod has a GPU of the device through a device plugin.",
        "Nothing: the taint goes when the pod ends.",
    ),
    Word(
        "nodetopo.io/published-twice",
        "Another DRA driver, the value, publishes a GPU of the device too.",
        "Turn one of the drivers off on this node.",
    ),
)
"""Keys of taints on devices of nodetopo's ResourceSlices."""

HAND_OVER = (
    Word(
        "auto",
        "nodetopo chooses one of the other ways by the node's container runtime, toolkit and CDI "
        "specifications, and again when they change.",
        "Nothing; the log has the choice and its reason (`hand-over chosen`).",
    ),
    Word(
        "cdi-cri",
        "The kubelet passes CDI names to the container runtime, which takes device nodes and "
        "libraries from a CDI specification.",
        "Needs a specification of every device and a runtime with CDI enabled.",
    ),
    Word(
        "cdi-annotations",
        "As `cdi-cri`, by annotations, for kubelets and runtimes without the CRI field.",
        "Use `cdi-cri` where both support it.",
    ),
    Word(
        "envvar",
        "NVIDIA's container runtime reads `NVIDIA_VISIBLE_DEVICES`.",
        "Needs NVIDIA's runtime for the pod. Pods can set the variable themselves.",
    ),
    Word(
        "device-specs",
        "The kubelet passes the driver's device nodes to the container, without its libraries.",
        "Use it together with another way, as `pass-device-specs` of NVIDIA's plugin does.",
    ),
    Word(
        "volume-mounts",
        "NVIDIA's container runtime reads the devices from volume mounts, which pods can't forge.",
        "Needs `accept-nvidia-visible-devices-as-volume-mounts` in the toolkit's configuration.",
    ),
)
"""Ways to hand devices over to containers (``device-list-strategy``)."""
