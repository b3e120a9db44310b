"""Rule on how NCCL tells whether two pods are on one node.

NCCL takes two processes for neighbours if their host name and the kernel's ``boot_id`` hash
alike, or if both have the same ``NCCL_HOSTID`` (NVIDIA/nccl v2.30.7-1 ``src/misc/utils.cc``
``getHostHashOnce``). The host name is the pod's unless it lives in the host's network.
"""

from collections.abc import Iterator

from agent.checks.gpu_pods import GPU, container_name, missing_pods, pod_name
from agent.checks.inputs import Inputs, missing_gpus
from agent.checks.nvlink_inputs import knows_links
from agent.checks.pods.inputs import (
    has_nvlink,
    jobs,
    listed,
    missing_environment,
    missing_of_gpu_pods,
    spans_nodes,
    together,
    whole_gpus,
    with_gpus,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pod import Container, Pod
from agent.model.snapshot import Snapshot

# Rules on pods that see GPUs which the kubelet did not give them.

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
"""The variable by which NVIDIA's container runtime learns which GPUs to inject."""


NOTHING = ("", "none", "void")
"""Its values that name no GPU (NVIDIA/nvidia-container-toolkit v1.18 ``internal/config/image``)."""


ALL = "all"
"""Its value that names every GPU."""


SHOWN = 60
"""Characters of a value that a finding repeats."""


def _by_hand(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=container_name(pod, container),
            observed=f"{VISIBLE}={(value or '')[:SHOWN]}",
            expected=f"unset, and {GPU} asked for",
        )
        for pod, container, value in _set(snapshot)
        if _names_gpus(value)
        and not (value == ALL and _has_all(snapshot, container))
        and _is_heeded(snapshot, pod, container)
    )


def _has_all(snapshot: Snapshot, container: Container) -> bool:
    """Return whether *container* asks for all GPUs, so that it takes nobody's by naming them."""
    return 0 < len(snapshot.gpus) <= whole_gpus(container)


def _set(snapshot: Snapshot) -> Iterator[tuple[Pod, Container, str | None]]:
    for pod in jobs(snapshot):
        for container in pod.containers:
            if VISIBLE in (container.environment or {}):
                yield pod, container, (container.environment or {})[VISIBLE]


def _names_gpus(value: str | None) -> bool:
    return value is not None and value.strip().lower() not in NOTHING


def _is_heeded(snapshot: Snapshot, pod: Pod, container: Container) -> bool:
    """Return whether NVIDIA's runtime runs the pod and goes by the variable.

    A privileged container's variable it heeds whatever the toolkit's settings are.
    """
    if pod.runtime_class is None and _is_by_class_only(snapshot):
        return False
    toolkit = None if snapshot.host is None else snapshot.host.toolkit
    is_closed = toolkit is not None and toolkit.env_when_unprivileged is False
    return not is_closed or bool(container.is_privileged)


def _is_by_class_only(snapshot: Snapshot) -> bool:
    """Return whether pods without a RuntimeClass are known to run without NVIDIA's runtime."""
    configs = (None if snapshot.host is None else snapshot.host.runtime_configs) or ()
    return bool(configs) and all(
        one.default_runtime is not None and one.default_runtime not in one.nvidia_runtimes
        for one in configs
    )


def _missing_environment(snapshot: Snapshot) -> Inputs:
    silent = listed(
        container_name(pod, one)
        for pod in jobs(snapshot)
        for one in pod.containers
        if one.environment is None or one.has_hidden_environment
    )
    hidden = listed(container_name(pod, one) for pod, one, value in _set(snapshot) if value is None)
    return (
        *missing_pods(snapshot),
        *((f"environment of {silent}",) if silent else ()),
        *((f"value of {VISIBLE} in {hidden}",) if hidden else ()),
    )


def _sees_all(snapshot: Snapshot) -> tuple[Finding, ...]:
    here = len(snapshot.gpus)
    return tuple(
        Finding(
            subject=container_name(pod, container),
            observed=f"privileged, with {whole_gpus(container)} of {here} GPUs asked for",
            expected="not privileged",
        )
        for pod, container in with_gpus(snapshot)
        if container.is_privileged and whole_gpus(container) < here
    )


_privileges = missing_of_gpu_pods("privilege", lambda _, one: one.is_privileged is not None)


def _missing_privileges(snapshot: Snapshot) -> Inputs:
    return (*_privileges(snapshot), *missing_gpus(snapshot))


RULES: tuple[Rule, ...] = (
    Rule(
        code="POD-008",
        claim=f"no job names its GPUs by {VISIBLE}",
        why="The runtime then injects GPUs that the kubelet counts as free or has given to "
        "others: two jobs share a GPU, and neither its memory nor its time is shared out.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_environment,
        check=_by_hand,
        remedy=f"remove the variable and ask for {GPU}; set accept-nvidia-visible-devices-envvar-"
        "when-unprivileged = false in /etc/nvidia-container-runtime/config.toml, with a device "
        "list strategy of volume mounts or CDI",
        reference="https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/"
        "docker-specialized.html",
    ),
    Rule(
        code="POD-009",
        claim="no privileged container has only some of the node's GPUs",
        why="A privileged container has every device of the host: CUDA shows it all GPUs, also "
        "those of other jobs, and numbers them as if they were its own.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_privileges,
        check=_sees_all,
        remedy="drop `privileged: true`; for RDMA the capability IPC_LOCK and the device "
        "plugin's resource are enough",
        reference="https://kubernetes.io/docs/concepts/security/linux-kernel-security-constraints/"
        "#privileged-containers",
    ),
)


HOST = "NCCL_HOSTID"
"""The variable that takes the place of host name and ``boot_id``."""


def _findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    return (*_merged(snapshot), *_parted(snapshot))


def _merged(snapshot: Snapshot) -> Iterator[Finding]:
    """Find pods of several nodes that NCCL is told are on one."""
    for pod, container in with_gpus(snapshot):
        value = (container.environment or {}).get(HOST)
        if value and (pod.replicas or 0) > 1:
            yield Finding(
                subject=container_name(pod, container),
                observed=f"{HOST}={value[:SHOWN]} in all {pod.replicas} pods",
                expected="unset, or the name of the node, by fieldRef spec.nodeName",
            )


def _parted(snapshot: Snapshot) -> Iterator[Finding]:
    """Find pods of one job on this node that NCCL takes for pods of different nodes."""
    if not has_nvlink(snapshot) or spans_nodes(snapshot):
        return
    for pods in together(snapshot).values():
        apart = [pod for pod in pods if pod.uses_host_network is False and not _has_host(pod)]
        if len(apart) > 1:
            yield Finding(
                subject=listed(map(pod_name, apart)),
                observed="host names of their own, so that NCCL goes through the network",
                expected="one pod with all the GPUs of the job on this node",
            )


def _has_host(pod: Pod) -> bool:
    return any(HOST in (container.environment or {}) for container in pod.containers)


def _missing(snapshot: Snapshot) -> Inputs:
    networks = listed(
        pod_name(pod)
        for pod in jobs(snapshot)
        if pod.uses_host_network is None and any(pod in pods for pods in _jobs_here(snapshot))
    )
    unknown = (f"network of {networks}",) if networks else ()
    links = ("NVLinks",) if _jobs_here(snapshot) and not knows_links(snapshot) else ()
    return (*missing_environment(snapshot), *unknown, *links)


def _jobs_here(snapshot: Snapshot) -> tuple[tuple[Pod, ...], ...]:
    return tuple(together(snapshot).values())


RULE = Rule(
    code="POD-007",
    claim="NCCL can tell which pods of a job share a node",
    why="NCCL knows a node by host name and boot id. Two pods on a node have two host names, and "
    "talk through the network instead of NVLink; one NCCL_HOSTID in pods of several nodes makes "
    "NCCL look for GPUs that are elsewhere, and fail.",
    area=Area.PODS,
    suite=Suite.AUDIT,
    severity=Severity.WARNING,
    needs=_missing,
    check=_findings,
    remedy="give the job one pod for each node, with all GPUs that it uses there; leave "
    "NCCL_HOSTID unset, or set it from `spec.nodeName` for pods that share /dev/shm of the host",
    reference="https://github.com/NVIDIA/nccl/blob/v2.30.7-1/src/misc/utils.cc",
)
