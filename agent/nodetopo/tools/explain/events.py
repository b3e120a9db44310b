"""The Events that the daemon writes: when, and what to do; data alone.

Texts are Markdown with links as on ``docs/operate/runbook.md``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventReason:
    """Events of one cause.

    Attributes:
        names: their reasons.
        kind: ``Normal`` or ``Warning``.
    """

    names: tuple[str, ...]
    kind: str
    when: str
    cure: str


_NOTHING = "nothing"
_READINESS = "see the [reasons of readiness](#readiness-and-liveness)"


def _warning(name: str, when: str, cure: str) -> EventReason:
    return EventReason((name,), "Warning", when, cure)


def _normal(name: str, when: str, cure: str = _NOTHING) -> EventReason:
    return EventReason((name,), "Normal", when, cure)


NODE_EVENTS = (
    _warning(
        "GpuUnhealthy",
        "a GPU is no longer allocatable; the message has the cause",
        "depends on the class: [health.md](health.md#classes). To clear it, see "
        "[Bring a GPU back](health.md#bring-a-gpu-back)",
    ),
    _warning(
        "GpuDegraded", "a GPU is allocated last", "reset the GPU the next time that it is idle"
    ),
    _normal("GpuRecovered", "a GPU recovered by evidence, or an operator cleared it"),
    _warning(
        "HcaUnhealthy",
        "a Healthy HCA is no longer allocatable; the message has the cause",
        "see [HcaUnhealthy](#hcaunhealthy)",
    ),
    _warning(
        "HcaFlapping",
        "an HCA turned Unhealthy at least three times within an hour, and must stay up longer "
        "after each time",
        "see [HcaLinkFlapping](#hcalinkflapping)",
    ),
    _normal("HcaRecovered", "an HCA has been up for long enough"),
    _normal(
        "GpuXid",
        "an application error, which isn't evidence against the GPU",
        "inform the owner of the pod",
    ),
    EventReason(
        (
            "NvmlUnresponsive",
            "NvmlRefuses",
            "NvmlDied",
            "NvmlLibraryGone",
            "NvmlVersionMismatch",
        ),
        "Warning",
        "NVML failed as a whole, and all GPUs are Unhealthy",
        _READINESS,
    ),
    _normal("NvmlAnswers", "NVML returns readings again"),
    _warning(
        "FreshContainerWanted",
        "NVML refuses this container although PCI shows the GPUs; the daemon exits once to get a "
        "new container",
        "nothing; if it returns every hour, check the container runtime",
    ),
    _normal(
        "HealthCleared",
        "an operator ended the verdict on a GPU ([health.md](health.md#bring-a-gpu-back)); the "
        "message has the faults, and those that the GPU still reports",
    ),
    _normal("HealthForgotten", "the health file was removed"),
    _warning(
        "HealthFileDamaged",
        "the health file isn't what the daemon wrote, or cannot be read. While the daemon runs, it "
        "writes the file again and loses nothing. At a start the verdicts are lost, and all GPUs "
        "are Unhealthy (`HealthNotKnown`) until scans have shown no fault for `recovery`",
        "find the program that wrote the file; the old content is in `health.json.bad`. If the "
        "message names a newer release, roll forward, or remove the file",
    ),
    _warning(
        "StateFileUnusable",
        "a file of the daemon's state is damaged, is of a newer release, or cannot be read; the "
        "message names the file and what is unknown without it",
        "see [State files](install.md#state-files)",
    ),
    _warning(
        "ResourceConflict",
        "another device plugin serves one of nodetopo's resources",
        "[remove one of the two](#two-plugins-for-one-resource)",
    ),
    _normal("ResourceConflictOver", "the conflict is over"),
    _warning(
        "NotListed",
        "the kubelet accepted a resource but counts none of its devices as allocatable: another "
        "device plugin replaced this one",
        "nothing: the daemon registers again; if it returns, remove the other plugin",
    ),
    _normal("ListedAgain", "the kubelet counts the devices again"),
    _warning(
        "AnotherInstance",
        "another nodetopo serves the resource on this node",
        "outside a rollout, remove one; maybe manifests and chart are both installed",
    ),
    _normal(
        "OnlyInstance",
        "the other nodetopo has ended; this one has registered again if the other one registered "
        "later",
    ),
    _normal(
        "DriverPaused",
        "a label of the Node asks for a free driver: the daemon closes NVML and keeps serving "
        "from memory",
    ),
    _normal("DriverResumed", "no label asks for a free driver any longer: NVML is read again"),
    _warning(
        "DriverPausedLong",
        "the label has been there for an hour, or for another hour",
        "see [NodetopoDriverPaused](#nodetopodriverpaused)",
    ),
    _warning(
        "GpusMissing",
        "NVML doesn't list GPUs that are on the PCI bus, or the bus has fewer GPUs than the "
        "machine should have; the message names them",
        "see [GpuMissing](#gpumissing)",
    ),
    _normal("GpusComplete", "no GPU is missing any longer"),
    _normal(
        "GpusServedByDra",
        "a DRA driver publishes GPUs of this node, or a DeviceClass has the resource's name, and "
        "`offer-gpus` is `auto`: the device plugin no longer advertises them",
        "nothing if you installed that driver; see [DRA](dra.md#run-alongside-another-dra-driver)",
    ),
    _normal(
        "GpusOfferedAgain",
        "no DRA driver publishes GPUs of this node any longer, and no pod has a GPU by claim",
    ),
    _warning(
        "GpusPublishedTwice",
        "with `dra`: another DRA driver publishes GPUs of this node too, or pods have claims of "
        "it; nodetopo's devices of these GPUs have the taint `nodetopo.io/published-twice` and "
        "take no new claims",
        "turn one of the drivers off on this node; see [DRA](dra.md#our-driver)",
    ),
    _normal(
        "GpusPublishedOnce",
        "no other DRA driver publishes GPUs of this node any longer, and no pod has a GPU by its "
        "claim",
    ),
    _warning(
        "SliceFieldsDropped",
        "with `dra`: the API server drops counters or taints of ResourceSlices, because a feature "
        "gate is off; sets aren't published, and without taints unhealthy GPUs are left out",
        "nothing if single GPUs are enough; otherwise enable `DRAPartitionableDevices` and "
        "`DRADeviceTaints`, or upgrade to Kubernetes 1.36",
    ),
    _normal("SliceFieldsKept", "the API server keeps all fields of ResourceSlices"),
    _warning(
        "NoHandOver",
        "with `device-list-strategy: auto`: nothing brings GPUs into containers",
        _READINESS,
    ),
    _normal(
        "HandOverChanged",
        "with `device-list-strategy: auto`: the node's files ask for another strategy",
    ),
    _warning(
        "CdiNotWritten",
        "with `cdi-spec: write`: the driver's library or device nodes are missing, so the CDI "
        "specification wasn't written, or lacks GPUs",
        _READINESS,
    ),
    _normal("CdiWritten", "the CDI specification has all advertised devices"),
    _normal("ConfigChanged", "another configuration is active; the message lists the changes"),
    _warning(
        "ConfigRefused",
        "a new configuration or checks file is invalid; the current one stays active (at a start "
        "with an unknown check code: the defaults)",
        "correct the file that the message names",
    ),
)
"""About the Node, in the order of the runbook."""

POD_EVENTS = (
    _warning(
        "PodMisaligned",
        "a running pod's GPUs, CPUs, memory or HCAs are on different NUMA nodes",
        "see the causes in the message: [alignment.md](../reference/alignment.md)",
    ),
    _warning(
        "RejectionExplained",
        "the kubelet rejected the pod for its devices, CPUs or memory",
        "apply one of the changes in the message. If the message says that the device plugin was "
        "down, nothing: the controller creates another pod",
    ),
    _warning(
        "PlacementPolicyUnknown",
        "the pod's annotation `nodetopo.io/placement-policy` isn't a policy, so the node's policy "
        "applies",
        "correct the word in the pod's template: "
        "[placement.md](../internals/placement.md#policies-of-pods)",
    ),
    _warning(
        "PlacementPolicyUnused",
        "the pod's GPUs were chosen by the node's policy and not by its annotation, because the "
        "daemon did not know in time which pod asks",
        "delete the pod to have it placed again; if it repeats, see "
        "`nodetopo_requester_lookups_total` and whether the log has `pods not followed`",
    ),
    _normal("DevicesPlaced", "the daemon tells the devices of each container, and why"),
)
"""About pods."""
