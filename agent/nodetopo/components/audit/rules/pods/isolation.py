"""Rules on pods that see GPUs the kubelet did not give them, or hide which node they are on."""

from collections.abc import Iterator

from nodetopo.checks.inputs import missing_gpus
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.gpu_pods import GPU, container_name, missing_pods, pod_name
from nodetopo.components.audit.rules.nvlink_inputs import knows_links
from nodetopo.components.audit.rules.pods.inputs import (
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
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot

HOST = "NCCL_HOSTID"
"""The variable that replaces host name and ``boot_id``.

NCCL takes two processes for neighbours if their host name and the kernel's ``boot_id`` hash
alike, or if both have the same ``NCCL_HOSTID`` (NVIDIA/nccl v2.30.7-1 ``src/misc/utils.cc``
``getHostHashOnce``). The host name is the pod's unless it uses the host's network.
"""

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
"""The variable that selects the GPUs that NVIDIA's container runtime injects."""

NOTHING = ("", "none", "void")
"""Its values that name no GPU (NVIDIA/nvidia-container-toolkit v1.18 ``internal/config/image``)."""

ALL = "all"
"""Its value that names every GPU."""

SHOWN = 60
"""Characters of a value that a finding repeats."""


@rule("POD-007", Severity.WARNING)
def host_identity(snapshot: Snapshot) -> Judgement:
    """Look for pods that NCCL takes for neighbours or strangers by mistake."""
    together_here = together(snapshot).values()
    yield from missing_environment(snapshot)
    unknown = listed(
        pod_name(pod)
        for pod in jobs(snapshot)
        if pod.uses_host_network is None and any(pod in pods for pods in together_here)
    )
    if unknown:
        yield Missing(f"network of {unknown}")
    if together_here and not knows_links(snapshot):
        yield Missing("NVLinks")

    # Pods of several nodes with the same NCCL_HOSTID.
    for pod, container in with_gpus(snapshot):
        value = (container.environment or {}).get(HOST)
        if value and (pod.replicas or 0) > 1:
            yield Finding(
                subject=container_name(pod, container),
                observed=f"{HOST}={value[:SHOWN]} in all {pod.replicas} pods",
                expected="unset, or the name of the node, by fieldRef spec.nodeName",
            )
    # Pods of one job on this node that NCCL takes for pods of different nodes.
    if not has_nvlink(snapshot) or spans_nodes(snapshot):
        return
    for pods in together_here:
        apart = [
            pod
            for pod in pods
            if pod.uses_host_network is False
            and not any(HOST in (container.environment or {}) for container in pod.containers)
        ]
        if len(apart) > 1:
            yield Finding(
                subject=listed(map(pod_name, apart)),
                observed="different host names, so that NCCL uses the network",
                expected="one pod with all the GPUs of the job on this node",
            )


@rule("POD-008", Severity.WARNING)
def visible_devices(snapshot: Snapshot) -> Judgement:
    """Look for containers of jobs that name GPUs to NVIDIA's runtime."""
    yield from missing_pods(snapshot)
    silent = listed(
        container_name(pod, container)
        for pod in jobs(snapshot)
        for container in pod.containers
        if container.environment is None or container.has_hidden_environment
    )
    if silent:
        yield Missing(f"environment of {silent}")
    with_variable = [*_with_variable(snapshot)]
    hidden = listed(
        container_name(pod, container) for pod, container, value in with_variable if value is None
    )
    if hidden:
        yield Missing(f"value of {VISIBLE} in {hidden}")
    for pod, container, value in with_variable:
        if value is None or value.strip().lower() in NOTHING:
            continue
        # A container that requests all GPUs takes no other pod's by naming them.
        has_all = value == ALL and 0 < len(snapshot.gpus) <= whole_gpus(container)
        if not has_all and _is_heeded(snapshot, pod, container):
            yield Finding(
                subject=container_name(pod, container),
                observed=f"{VISIBLE}={value[:SHOWN]}",
                expected=f"unset, and {GPU} asked for",
            )


def _with_variable(snapshot: Snapshot) -> Iterator[tuple[Pod, Container, str | None]]:
    for pod in jobs(snapshot):
        for container in pod.containers:
            environment = container.environment or {}
            if VISIBLE in environment:
                yield pod, container, environment[VISIBLE]


def _is_heeded(snapshot: Snapshot, pod: Pod, container: Container) -> bool:
    """Return whether NVIDIA's runtime runs the pod and honours the variable.

    For a privileged container it does so regardless of the toolkit's settings.
    """
    host = snapshot.host
    configs = (None if host is None else host.runtime_configs) or ()
    is_by_class_only = bool(configs) and all(
        config.default_runtime is not None and config.default_runtime not in config.nvidia_runtimes
        for config in configs
    )
    if pod.runtime_class is None and is_by_class_only:
        return False
    toolkit = None if host is None else host.toolkit
    is_closed = toolkit is not None and toolkit.env_when_unprivileged is False
    return not is_closed or bool(container.is_privileged)


@rule("POD-009", Severity.WARNING)
def privileged_containers(snapshot: Snapshot) -> Judgement:
    """Look for privileged containers that ask for fewer GPUs than they see."""
    yield from missing_of_gpu_pods(
        snapshot, "privilege", lambda _, container: container.is_privileged is not None
    )
    yield from missing_gpus(snapshot)
    here = len(snapshot.gpus)
    for pod, container in with_gpus(snapshot):
        if container.is_privileged and whole_gpus(container) < here:
            yield Finding(
                subject=container_name(pod, container),
                observed=f"privileged, with {whole_gpus(container)} of {here} GPUs asked for",
                expected="not privileged",
            )
