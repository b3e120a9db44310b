"""The alerts of ``deploy/helm/files/alerts.yaml``, for the person who gets one; data alone.

Texts are Markdown with links as on ``docs/operate/runbook.md``, whose commands use its lines for
``NODE``, ``POD`` and ``agent``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEntry:
    """An alert.

    Attributes:
        means: the observation behind it.
        impact: the cost of leaving it.
        confirm: how to make sure.
        cure: what to do.
    """

    name: str
    means: str
    impact: str
    confirm: str
    cure: str


ALERTS = (
    AlertEntry(
        name="GpuUnhealthy",
        means="the daemon has evidence against the GPU, by the [classes](health.md#classes) of "
        "health.md.",
        impact="no new pod gets the GPU. Pods that have it keep running and can fail.",
        confirm="`kubectl describe node $NODE` has an Event GpuUnhealthy with the cause; "
        "`agent health` prints the checks of the hardware.",
        cure="by the class in `nodetopo_gpu_health_info`: for `reset`, reset the GPU once it is "
        "idle; for `reboot`, reboot the node; for `rma`, have the GPU replaced. The GPU recovers "
        "by itself once evidence shows that it works. To end the verdict manually: "
        "`agent health --clear GPU3` ([conditions](health.md#bring-a-gpu-back)).",
    ),
    AlertEntry(
        name="GpuLost",
        means="the driver lost the GPU, or no longer lists it.",
        impact="the work on it has failed. The node's capacity keeps the GPU, as Unhealthy.",
        confirm='`agent health --only PCI-002`; `dmesg` on the node usually has XID 79, "fallen '
        'off the bus".',
        cure="drain and reboot the node. If the GPU doesn't come back, power the node off and on. "
        "If the driver loses it again, check its power and its seat, and open a case with the "
        "vendor.",
    ),
    AlertEntry(
        name="GpuMissing",
        means="the node has fewer GPUs than it should. Either NVML doesn't list GPUs that are on "
        "the PCI bus and bound to `nvidia`, or to no driver while others are bound (PCI-002). Or "
        "the GPUs aren't on the bus, and the machine has had more, its instance type has more, or "
        "`expect-gpus` says more (PCI-010).",
        impact="the node continues with the remaining GPUs; without any, it isn't ready "
        "(`GpusMissing`).",
        confirm="`agent health --only PCI-002,PCI-010`; `dmesg` on the node has lines of NVRM "
        "about "
        "the address, such as `RmInitAdapter failed`, if the driver gave up a GPU.",
        cure="drain and reboot the node, and power it off and on if that doesn't help. Look for "
        "power and PCIe faults in the management controller, and open a case with the vendor. If "
        "GPUs were removed on purpose, set `expect-gpus` to the remaining number, or remove the "
        "node's `/var/lib/nodetopo/gpu-count.json` (`gpu-count-file`). `expect-gpus: 0` turns the "
        "comparison off.",
    ),
    AlertEntry(
        name="GpuNeedsRepair",
        means="the driver requests the action with the number in the alert "
        "([recovery actions](health.md#recovery-actions)).",
        impact="the GPU is Unhealthy, or for action 5 allocated last.",
        confirm="`agent health --only GPU-001`.",
        cure="follow the action. 1: reset the GPU. 2, 7: reboot. 3, 4: end the pods that use "
        "peer-to-peer traffic on the node, then reset. 5: restart the IMEX domain. 6: reset the "
        "PCIe bus, or reboot.",
    ),
    AlertEntry(
        name="GpuDegraded",
        means="a part is worn or waits for a reset; new work is safe.",
        impact="the GPU is allocated only if no sound GPU is free.",
        confirm="`agent health`, and the reason in `nodetopo_gpu_health_info`.",
        cure="reset the GPU when it is idle, with the node's next maintenance. If the reason is "
        "`PcieLanesMissing`, reseat the GPU instead, and check riser, cable and the slot's "
        "bifurcation.",
    ),
    AlertEntry(
        name="GpuRowRemapFailed",
        means="a memory row failed and no spare row was left to replace it.",
        impact="the GPU is Unhealthy for good; resets don't help.",
        confirm="`agent health --only GPU-002`; `nvidia-smi -q -d ROW_REMAPPER` on the node.",
        cure="have the GPU replaced. If `health-file` outlives a boot, clear the old GPU "
        "afterwards "
        "by its UUID: `agent health --clear GPU-… --yes`.",
    ),
    AlertEntry(
        name="GpuRowRemapPending",
        means="a spare row replaces a memory row at the next reset.",
        impact="none on new work, because the driver no longer uses the row; the GPU is allocated "
        "last.",
        confirm="`agent health --only GPU-003`.",
        cure="reset the GPU when it is idle.",
    ),
    AlertEntry(
        name="GpuSramThresholdExceeded",
        means="the GPU's on-chip memory had more uncorrectable errors than NVIDIA accepts.",
        impact="the GPU is Unhealthy for good.",
        confirm="`agent health --only GPU-004`; `nvidia-smi -q -d ECC` on the node.",
        cure="run NVIDIA's field diagnostic and have the GPU replaced.",
    ),
    AlertEntry(
        name="GpuUncontainedMemoryError",
        means="XID 95. An uncorrectable memory error wasn't confined to one process.",
        impact="any work on this GPU can have failed or computed with wrong data. The GPU is "
        "Unhealthy until a reset.",
        confirm="`dmesg` on the node has the XID; `agent health --only GPU-004`.",
        cure="end the pods on the GPU and reset it. If the error returns, have the GPU replaced.",
    ),
    AlertEntry(
        name="GpuMemoryErrors",
        means="the GPU had uncorrectable memory errors within the last hour, contained or not.",
        impact="the work that used the memory has failed.",
        confirm="`agent health --only GPU-003,GPU-004`.",
        cure="nothing at once; the GPU's class tells whether a reset is due. If the errors return "
        "on the same GPU after a reset, have it replaced.",
    ),
    AlertEntry(
        name="GpuXidBurst",
        means="the GPU reported many XIDs, not counting those that applications cause.",
        impact="depends on the codes in the table of [health.md](health.md#xids).",
        confirm="`nodetopo_xid_events_total` for the GPU has the codes; `dmesg` on the node has "
        "the "
        "details.",
        cure="follow the class of the worst code. For a burst of one application's faults, inform "
        "its owner.",
    ),
    AlertEntry(
        name="GpuFlapping",
        means="the GPU turned Unhealthy and Healthy again several times within an hour.",
        impact="pods start on it and fail. After three times in a day it stays Unhealthy until a "
        "boot.",
        confirm="`kubectl describe node $NODE` lists GpuUnhealthy and GpuRecovered with their "
        "causes.",
        cure="drain and reboot the node. If it continues, have the GPU checked.",
    ),
    AlertEntry(
        name="GpuPcieWidthReduced",
        means="the GPU's PCIe link trained to fewer lanes than both ends have.",
        impact="copies to and from the host and HCAs get a fraction of their bandwidth.",
        confirm="`agent health --only PCI-001,PCI-003`.",
        cure="reboot the node. If that doesn't help, reseat the GPU or its riser. If the slot "
        "never "
        "had more lanes, waive the check and silence the alert.",
    ),
    AlertEntry(
        name="GpuNvLinkDown",
        means="fewer NVLinks of the GPU are active than within the last day.",
        impact="jobs on several GPUs are slower, or fail in NCCL.",
        confirm="`agent health --only NVL`; `nvidia-smi nvlink -s` on the node.",
        cure="reset all GPUs of the board together, or reboot: a failed link trains again only "
        "then. With NVSwitches, first read the log of nv-fabricmanager. The alert compares the GPU "
        "with earlier readings of the same agent pod, so a new pod ends it; NVL-001 keeps failing.",
    ),
    AlertEntry(
        name="GpuFabricNotReady",
        means="ten minutes after it was first seen, the GPU hasn't joined the NVLink fabric.",
        impact="CUDA might not start on it, and it reaches no other GPU over NVLink.",
        confirm="`agent health --only NVL-004`; `agent audit --only NVL-006,NVL-007`.",
        cure="check that nvidia-fabricmanager runs, in exactly the driver's version. On NVLink "
        "racks, check the fabric's manager and IMEX. Then restart the service, or reboot.",
    ),
    AlertEntry(
        name="HcaPortDown",
        means="a port of the RDMA adapter was active within the last day and isn't now.",
        impact="jobs on several nodes lose a rail, or fail; placement doesn't count the HCA as a "
        "rail.",
        confirm="`agent health --only RDM-001`; `rdma link` on the node.",
        cure="check cable, transceiver and the switch port. The alert compares with earlier "
        "readings of the same agent pod, so a new pod ends it; RDM-001 keeps failing.",
    ),
    AlertEntry(
        name="HcaUnhealthy",
        means="an advertised RDMA adapter has had no ACTIVE port for a while, or is gone: "
        "[the reasons](health.md#hcas) are in `nodetopo_hca_health_info`.",
        impact="no new pod gets it. Pods that have it lose a rail, or fail. The kubelet keeps its "
        "devices in the capacity, but not in the allocatable amount.",
        confirm="`kubectl describe node $NODE` has an Event HcaUnhealthy with the cause; "
        "`rdma link` and `dmesg` on the node.",
        cure="follow the reason. The HCA recovers by itself after it has been up for a minute.",
    ),
    AlertEntry(
        name="HcaLinkFlapping",
        means="the link of a port went down many times within an hour, maybe for too short a time "
        "to make the HCA Unhealthy.",
        impact="collective operations stall for seconds each time; some jobs end with an error.",
        confirm='`nodetopo_hca_port_errors_total{counter="link_downed"}`; `rdma link` and `dmesg` '
        "on the node.",
        cure="clean or replace cable and transceiver, and check the switch port. If all ports of a "
        "node or of a switch flap, first look at the switch and the subnet manager.",
    ),
    AlertEntry(
        name="GpuPlacementUndone",
        means="a setting of the nodes undoes the gain of placement, by the check in the alert.",
        impact="pods get GPUs, CPUs, memory and HCAs of different NUMA nodes, or are rejected.",
        confirm="`agent audit` on one of the nodes; the query "
        '`nodetopo_check_broken{report="audit", verdict="fail"}` lists all nodes.',
        cure="follow `nodetopo explain KUB-003`, with the alert's code. If the setting is "
        "intended, "
        "waive the check in `checks-file` ([configuration.md](configuration.md)).",
    ),
    AlertEntry(
        name="GpuHardwareCheckFails",
        means="the hardware of nodes isn't as it should be, by the check in the alert.",
        impact="depends on the check; usually, bandwidth.",
        confirm="`agent health` on one of the nodes.",
        cure="follow `nodetopo explain NVL-001`, with the alert's code. If the machine can't do "
        "better, waive the check in `checks-file`.",
    ),
    AlertEntry(
        name="GpuPodsMisaligned",
        means="GPUs, CPUs, memory or HCAs of running pods are on different NUMA nodes.",
        impact="copies of these pods between host, GPUs and HCAs cross the sockets.",
        confirm="`agent audit --only ALN` lists the pods and their causes.",
        cure="by the cause in [alignment.md](../reference/alignment.md), change the pod's requests "
        "or the kubelet's settings. A running pod can't be moved.",
    ),
    AlertEntry(
        name="GpuPodsNotMeasured",
        means="the kubelet doesn't report on its PodResources socket which pods have which "
        "devices.",
        impact="the alignment of the pods is unknown.",
        confirm='`kubectl -n nodetopo logs "$POD"` has the error.',
        cure="check that the kubelet runs and that the directory `pod-resources` is mounted in the "
        "pod.",
    ),
    AlertEntry(
        name="GpuPodsRejected",
        means="the kubelet rejects many pods for their devices, CPUs or memory.",
        impact="the pods are Failed with TopologyAffinityError or UnexpectedAdmissionError, and "
        "their controller creates others.",
        confirm='`kubectl get pods -A --field-selector "spec.nodeName=$NODE,status.phase=Failed"`; '
        "with the component `rejections` an Event on each pod names a change that makes it fit.",
        cure="change the requests to those that "
        "`nodetopo admit --manifest pod.yaml --machine dgx-h100` suggests for the machine, or stop "
        "the controller.",
    ),
    AlertEntry(
        name="GpuPlacementLate",
        means="the choice among the free GPUs took longer than the kubelet should wait.",
        impact="the pod got free GPUs, but arbitrary ones.",
        confirm='`kubectl -n nodetopo logs "$POD"` has "preferred allocation came too late".',
        cure="check that the node's CPUs aren't overloaded, and raise the container's CPU request. "
        "If it happens on an idle node, report it with the output of `agent capture -o -`.",
    ),
    AlertEntry(
        name="GpuAllocationSlow",
        means="by its own metric, the kubelet waited more than a tenth of a second for a device "
        "plugin.",
        impact="the kubelet admits one pod at a time, so every pod of the node waits.",
        confirm="`agent audit --only PLG-004,PLG-005`.",
        cure="if another plugin serves the resource, look at that plugin. nodetopo answers from "
        "memory: look for overloaded CPUs on the node, and raise the container's CPU request.",
    ),
    AlertEntry(
        name="NodetopoDown",
        means="Prometheus can't scrape the agent of a node.",
        impact="the node might not advertise GPUs, and no other alert covers it.",
        confirm='`kubectl -n nodetopo get pods -o wide`; `kubectl -n nodetopo describe "$POD"`.',
        cure="if the pod runs, check the NetworkPolicy and port 9430. Otherwise, read its Events "
        "and "
        'its last log: `kubectl -n nodetopo logs --previous "$POD"`.',
    ),
    AlertEntry(
        name="NodetopoAbsent",
        means="Prometheus has no metrics of any agent.",
        impact="no alert on GPUs can fire.",
        confirm="`kubectl -n nodetopo get daemonset,pods`; the page *Targets* of Prometheus.",
        cure="install the PodMonitor, or select the pods' port `metrics` in the scrape "
        "configuration. Don't load the rules into a Prometheus without an agent to scrape.",
    ),
    AlertEntry(
        name="NodetopoMissing",
        means="by its status the node has GPUs, but no agent on it has metrics.",
        impact="the node might not advertise GPUs, and no other alert covers it.",
        confirm='`kubectl -n nodetopo get pods -o wide --field-selector "spec.nodeName=$NODE"`.',
        cure="if the node has no agent pod, compare the node's labels and taints with the "
        "DaemonSet. Otherwise, see [NodetopoDown](#nodetopodown) and "
        "[NodetopoNotReady](#nodetoponotready).",
    ),
    AlertEntry(
        name="NodetopoRestarting",
        means="the agent of a node started more than three times within an hour.",
        impact="GPUs stay allocatable for a while; health and labels are interrupted.",
        confirm='`kubectl -n nodetopo describe "$POD"` has the reason of the last end.',
        cure="OOMKilled: raise the memory limit, and report it. Status 1: see "
        "[when the daemon exits](#when-the-daemon-exits). A failed liveness probe: a loop was "
        "stuck; report the previous log.",
    ),
    AlertEntry(
        name="NodetopoNotReady",
        means="`/readyz` has failed for five minutes.",
        impact="GPUs of the node might not reach pods, and a rollout waits.",
        confirm="`kubectl get --raw /api/v1/namespaces/nodetopo/pods/POD:9430/proxy/readyz` has "
        "the "
        "reasons.",
        cure="follow the [table of reasons](#readiness-and-liveness).",
    ),
    AlertEntry(
        name="NodetopoDriverPaused",
        means="for an hour a label of the Node has asked for a free driver: "
        "`nvidia.com/gpu.deploy.device-plugin` or `nvidia.com/gpu.deploy.client` is "
        "`paused-for-…`, "
        "`nvidia.com/gpu-driver-upgrade-state` is between `pod-deletion-required` and "
        "`pod-restart-required`, or `upgrade-failed`, or `nvidia.com/mig.config.state` is "
        "`pending`.",
        impact="NVML is closed. Devices stay advertised and labels stay, but no GPU is read: "
        "faults "
        "go unnoticed.",
        confirm="`kubectl get node $NODE --show-labels`; the Event `DriverPaused` has the time.",
        cure="find out why the upgrade or the MIG change doesn't end: read the log of the "
        "operator's driver pod or MIG manager, and `kubectl nodetopo $NODE audit --only RUN-012`, "
        "which names the processes that hold the driver (component `host-audit`). If nothing is in "
        "progress any longer, correct the label: the daemon then reads NVML again.",
    ),
    AlertEntry(
        name="GpuResourceNotRegistered",
        means="the node has GPUs, but the kubelet doesn't have the resource.",
        impact="no pod that requests the resource is placed on the node; running pods continue.",
        confirm="`kubectl get node $NODE -o jsonpath='{.status.allocatable}'` lacks it; the log "
        "has "
        "the error of the registration.",
        cure="check that the kubelet runs; see NotRegistered, ResourceConflict and NotOffered in "
        "the [table of reasons](#readiness-and-liveness).",
    ),
    AlertEntry(
        name="GpuResourceConflict",
        means="another device plugin has taken the resource, and nodetopo yields to it.",
        impact="pods get GPUs from the other plugin, without nodetopo's placement or health "
        "checks.",
        confirm="`agent audit --only PLG-005`; an Event ResourceConflict names the socket of the "
        "other plugin.",
        cure="[remove one of the two](#two-plugins-for-one-resource).",
    ),
    AlertEntry(
        name="NvmlStuck",
        means="NVML gave no reading three times in a row.",
        impact="if the driver hangs, all GPUs of the node are Unhealthy; if it refuses, they "
        "follow "
        "after ten minutes.",
        confirm="`nvidia-smi` on the node hangs or fails as well; `/readyz` has the kind of "
        "trouble.",
        cure="follow the Nvml reasons in the [table of reasons](#readiness-and-liveness). Usually, "
        "reboot.",
    ),
    AlertEntry(
        name="NodeScanStale",
        means="the node hasn't been read for more than five minutes.",
        impact="metrics and labels of the hardware are old. XIDs still arrive.",
        confirm='`kubectl -n nodetopo logs "$POD"`. With a `scan-interval` above 300, change the '
        "rule.",
        cure="if NvmlStuck fires too, treat that first. Otherwise delete the pod, and report its "
        "log.",
    ),
    AlertEntry(
        name="NodetopoConfigRefused",
        means="a changed configuration or checks file is invalid.",
        impact="the previous one stays in force; after a restart, the defaults can apply.",
        confirm="`kubectl describe node $NODE` has an Event ConfigRefused with file, key and "
        "cause.",
        cure="correct the file. `nodetopo run --print-config --config config.yaml` checks it "
        "beforehand.",
    ),
    AlertEntry(
        name="GpuLabelsNotPublished",
        means="the API server, or NFD, refused the labels several times.",
        impact="the node keeps its old labels; schedulers decide by them.",
        confirm='`kubectl -n nodetopo logs "$POD"` has the error; `agent labels` prints the labels '
        "that the node should have.",
        cure="403: check the ClusterRoleBinding and the policy of `own-node`. 409: another writer "
        "owns a key. 429 or timeouts: see the component `flow-schema`.",
    ),
    AlertEntry(
        name="GpuLabelsRefused",
        means="the values of some labels aren't valid for their output and aren't published.",
        impact="the node lacks these labels; the others are published.",
        confirm="the log names them; `agent labels` prints all.",
        cure="usually, correct a name in a file of topology levels or rules.",
    ),
    AlertEntry(
        name="NodeZonesNotPublished",
        means="zones or placements couldn't be read from the kubelet, or couldn't be published.",
        impact="NUMA-aware schedulers see an old NodeResourceTopology, and place pods that are "
        "rejected.",
        confirm="`kubectl get noderesourcetopologies $NODE -o yaml`; the log has the error.",
        cure="check that the CustomResourceDefinition is installed and the component `zones` "
        "applied.",
    ),
    AlertEntry(
        name="GpuFleetDegraded",
        means="more than 2 % of the GPUs of a cluster are Unhealthy at once.",
        impact="the capacity for jobs shrinks. Many nodes together are seldom single faults.",
        confirm="the query `count by (class, reason) (nodetopo_gpu_health_info)`.",
        cure="look for a common cause: a driver upgrade, a configuration, cooling, a switch. Stop "
        "rollouts first.",
    ),
)
"""In the order of the runbook, by severity of the cause."""
