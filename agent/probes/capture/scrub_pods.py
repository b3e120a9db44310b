"""Pods without what tells whose they are."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from agent.model.pod import Container, Pod
from agent.model.snapshot import Snapshot
from agent.probes.capture.scrub_issues import without_names
from agent.probes.capture.substitutes import LEAST, Substitutes

PUBLIC_IMAGES = ("nvcr.io/nvidia/", "registry.k8s.io/", "k8s.gcr.io/")
"""Registries whose images are everybody's, and tell what they are."""

PUBLIC_RUNTIMES = ("nvidia", "runc", "crun", "kata", "gvisor")
"""How the names of runtimes begin that are everybody's."""

PUBLIC_LABELS = ("nvidia.com/", "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/")
"""How the names of node labels begin that say something of hardware."""

_LEFT_OUT = "…"
_OWN_WORDS = ("TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "OutOf")
"""How the reasons begin whose messages are the kubelet's own."""
_WORDS = frozenset(
    """
    INFO WARN TRACE VERSION ABORT ALL INIT COLL P2P SHM NET GRAPH TUNING ENV ALLOC CALL PROXY
    NVLS BOOTSTRAP REG LOC NVL PIX PXB PXN PHB NODE SYS P2C RING TREE COLLNET COLLNETDIRECT
    COLLNETCHAIN NVLSTREE PAT LL LL128 SIMPLE IB ROCE SOCKET TRUE FALSE AUTO NONE VOID COMPUTE
    UTILITY GRAPHICS VIDEO DISPLAY COMPAT32 NGX ON OFF LO RC UD DC TCP SM SELF RDMA CUDA
    CUDA_COPY CUDA_IPC GDR_COPY RC_X UD_X DC_X FIFO CAP ENABLED DISABLED DEFAULT
    PCI_BUS_ID FASTEST_FIRST
    """.split()  # noqa: SIM905 - as prose
)
"""Words that NCCL, UCX and NVIDIA's container toolkit give a meaning, in capital letters."""
_DEVICE = r"(?:mlx[45]_|eth|ib|bond|docker|hsn|net|efa|en[ops]|rocep|ib[ps])[0-9][0-9a-fnpsv]{0,15}"
"""A network device or HCA as kernels and udev call it."""
_PART = re.compile(
    rf"[0-9]{{1,12}}[kmgi]?b?|0x[0-9a-f]{{1,16}}|(?:GPU|MIG)-[0-9a-f-]{{36}}|{_DEVICE}|lo|docker",
    re.IGNORECASE,
)
"""A number, an amount, a GPU, or a network device."""
_BETWEEN = re.compile(r"[,:;=^~+|\s-]+")
_PLAIN_ID = re.compile(
    r"(?:GPU|MIG)-[0-9a-f-]{36}(?:[:-].{0,8})?"
    r"|(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?:::?[0-9]+)?"
    rf"|(?:nvidia|gpu|cpu|rdma|vf|uverbs)[_-]?[0-9]{{1,4}}|[0-9]{{1,4}}|{_DEVICE}",
    re.IGNORECASE,
)
"""Ids of devices that tell their kind and place only; UUIDs in them are replaced as text."""


def learn_devices(snapshot: Snapshot, substitutes: Substitutes) -> None:
    """Invent substitutes for ids of devices, pods and containers that other sources name too."""
    for kind, original in _originals(snapshot):
        if len(original) >= LEAST:
            substitutes.of(kind, original)


def _originals(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for pod in snapshot.pods or ():
        yield "UUID", pod.uid or ""
        for container in pod.containers:
            yield "container id", container.id or ""
    for uid in _uids_of_state(snapshot):
        yield "UUID", uid
    for name in _device_ids(snapshot):
        if not _PLAIN_ID.fullmatch(name):
            yield "device id", name


def _uids_of_state(snapshot: Snapshot) -> Iterator[str]:
    state = snapshot.kubelet_state
    if state is not None:
        yield from (state.cpu.entries if state.cpu else None) or ()
        yield from (state.memory.entries if state.memory else None) or ()
        yield from (held.pod_uid for held in (state.devices.held if state.devices else ()))


def _device_ids(snapshot: Snapshot) -> Iterator[str]:
    for pod in snapshot.pods or ():
        for container in pod.containers:
            yield from container.unhealthy_devices or ()
            for devices in container.devices or ():
                yield from devices.ids
    yield from (device.id for device in (snapshot.offer.devices if snapshot.offer else ()))
    state = snapshot.kubelet_state.devices if snapshot.kubelet_state else None
    if state is not None:
        for ids in (state.registered or {}).values():
            yield from ids
        for held in state.held:
            for names in held.ids.values():
                yield from names


def scrub_pods(pods: Iterable[Pod], substitutes: Substitutes) -> tuple[Pod, ...]:
    """Return *pods* with invented names, and without texts of their owners."""
    return tuple(_pod(pod, substitutes) for pod in pods)


def _pod(pod: Pod, substitutes: Substitutes) -> Pod:
    return replace(
        pod,
        namespace=substitutes.counted("namespace", pod.namespace),
        name=substitutes.counted("pod", f"{pod.namespace}/{pod.name}"),
        containers=tuple(_container(container, substitutes) for container in pod.containers),
        status_message=_message(pod),
        hostname=pod.hostname and substitutes.counted("hostname", pod.hostname),
        runtime_class=_unless(pod.runtime_class, PUBLIC_RUNTIMES, "runtime", substitutes),
        node_selector=_labels(pod.node_selector, substitutes),
    )


def _message(pod: Pod) -> str | None:
    if pod.status_message is None:
        return None
    is_the_kubelet_s = (pod.status_reason or "").startswith(_OWN_WORDS)
    return without_names(pod.status_message, pod) if is_the_kubelet_s else _LEFT_OUT


def _labels(labels: Mapping[str, str] | None, substitutes: Substitutes) -> dict[str, str] | None:
    if labels is None:
        return None
    return {
        name if name.startswith(PUBLIC_LABELS) else substitutes.counted("label", name): (
            value if name.startswith(PUBLIC_LABELS) else substitutes.counted("value", value)
        )
        for name, value in labels.items()
    }


def _container(container: Container, substitutes: Substitutes) -> Container:
    environment = container.environment
    return replace(
        container,
        name=substitutes.counted("container", container.name),
        image=_unless(container.image, PUBLIC_IMAGES, "image", substitutes),
        environment=environment
        and {
            name: None if value is None else variable(value) for name, value in environment.items()
        },
    )


def variable(value: str) -> str:
    """Return the *value* of a variable if all of it has a public meaning, else three dots."""
    parts = (part for part in _BETWEEN.split(value) if part)
    whole = _PART.fullmatch(value) is not None
    is_public = whole or all(part.upper() in _WORDS or _PART.fullmatch(part) for part in parts)
    return value if is_public else _LEFT_OUT


def _unless(
    name: str | None, public: tuple[str, ...], kind: str, substitutes: Substitutes
) -> str | None:
    if name is None or name.startswith(public):
        return name
    return substitutes.counted(kind, name)
