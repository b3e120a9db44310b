"""The pods that a manifest would create, as the API server would complete them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import yaml

from agent.errors import DecodeError, InputError
from agent.model.pod import Container, ContainerKind, Pod
from agent.probes.pod_object import Object, pod_from_object
from agent.probes.yaml_slips import TRIPPED

MAX_BYTES = 1 << 20
"""Largest manifest read; the API server accepts objects of 1.5 MiB at most."""

TEMPLATES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Pod": (),
        "PodTemplate": ("template",),
        "ReplicationController": ("spec", "template"),
        "ReplicaSet": ("spec", "template"),
        "Deployment": ("spec", "template"),
        "StatefulSet": ("spec", "template"),
        "DaemonSet": ("spec", "template"),
        "Job": ("spec", "template"),
        "CronJob": ("spec", "jobTemplate", "spec", "template"),
    },
)
"""Where each kind keeps its pod (Kubernetes API reference, workload resources)."""

_LISTS = ("List", "PodList")


def pods_from_manifest(text: str) -> tuple[Pod, ...]:
    """Return the pods of all documents in *text*, one for each controller's pod template.

    Requests are defaulted from limits, as the API server does before a kubelet sees the
    pod; a LimitRange of the namespace is not known here. Documents that carry no pod, such
    as a Service, are passed over.

    Raises:
        InputError: not YAML, no pod in it, or a field that cannot be used; the text names
            the document and the field.
    """
    pods: list[Pod] = []
    for number, document in enumerate(_documents(text), start=1):
        where = f"document {number}{_title(document)}"
        try:
            pods.extend(map(_defaulted, _pods_in(document)))
        except DecodeError as error:
            cure = error.cure or "correct the manifest"
            raise InputError(f"{where}: {DecodeError(error.path, error.problem)}", cure) from None
        except RecursionError:
            raise InputError(f"{where}: nested too deeply", "flatten it") from None
    if not pods:
        raise InputError("no pod in the manifest", f"give one of: {', '.join(TEMPLATES)}")
    return tuple(pods)


def _documents(text: str) -> list[Any]:
    if len(text) > MAX_BYTES:
        raise InputError(f"the manifest is larger than {MAX_BYTES >> 20} MiB", "split it")
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise InputError(f"not YAML: {error.problem} in line {line}", "correct it") from None
    except (yaml.YAMLError, *TRIPPED) as error:
        raise InputError(f"not YAML: {type(error).__name__}", "correct it") from None
    return [document for document in documents if document is not None]


def _title(document: Any) -> str:
    if not isinstance(document, Mapping):
        return ""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    known = [part for part in (document.get("kind"), name) if part and isinstance(part, str)]
    return f" ({' '.join(known)})" if known else ""


def _pods_in(document: Any) -> Iterator[Pod]:
    if not isinstance(document, Mapping):
        raise DecodeError("", f"expected an object, found {type(document).__name__}")
    kind = document.get("kind")
    if not isinstance(kind, str):
        raise DecodeError("kind", "missing, or not a text")
    if kind in _LISTS:
        items = document.get("items")
        for item in items if isinstance(items, list) else ():
            yield from _pods_in(item)
    elif kind in TEMPLATES:
        yield _pod(document, TEMPLATES[kind])
    else:
        _refuse_hidden_pods(document, kind)


def _pod(document: Object, path: tuple[str, ...]) -> Pod:
    template: Any = document
    for depth, field in enumerate(path, start=1):
        template = template.get(field)
        if not isinstance(template, Mapping):
            raise DecodeError(".".join(path[:depth]), "missing, or not an object")
    if not isinstance(template.get("spec"), Mapping):
        raise DecodeError(".".join((*path, "spec")), "missing, or not an object")
    metadata = document.get("metadata") or {}
    try:
        # A template has no name: its pods are named after the controller.
        return pod_from_object({"metadata": metadata, "spec": template["spec"]})
    except DecodeError as error:
        is_inside = path and not error.path.startswith("metadata")
        raise error.under(".".join(path)) if is_inside else error from None


def _refuse_hidden_pods(document: Object, kind: str) -> None:
    """Raise for a misspelt kind, and for one that carries pods in a place unknown to us."""
    close = get_close_matches(kind, TEMPLATES, n=1, cutoff=0.8)
    if close:
        raise DecodeError("kind", f"unknown kind {kind!r}", f"did you mean {close[0]!r}?")
    if _has_containers(document):
        cure = f"give the pods as one of: {', '.join(TEMPLATES)}"
        raise DecodeError("kind", f"cannot read the pods of a {kind}", cure)


def _has_containers(document: Object) -> bool:
    seen: set[int] = set()  # aliases may form loops
    waiting: list[Any] = [document]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or not isinstance(value, Mapping | list):
            continue
        seen.add(id(value))
        if isinstance(value, Mapping) and isinstance(value.get("containers"), list):
            return True
        waiting.extend(value.values() if isinstance(value, Mapping) else value)
    return False


def _defaulted(pod: Pod) -> Pod:
    """Complete requests as the API server does (1.36 ``pkg/apis/core/v1/defaults.go``)."""
    containers = tuple(map(_with_requests, pod.containers))
    if not pod.limits:
        return replace(pod, containers=containers)
    # Pod-level requests come from what the containers ask for, then from pod-level limits.
    asked = {name: amount for name, amount in _together(containers).items() if _is_pod_level(name)}
    requests = {**pod.limits, **asked, **(pod.requests or {})}
    return replace(pod, containers=containers, requests=requests)


def _with_requests(container: Container) -> Container:
    requests = {**(container.limits or {}), **(container.requests or {})}
    return replace(container, requests=requests)


def _is_pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _together(containers: Iterable[Container]) -> Mapping[str, int]:
    """Return what the pod holds at its greediest moment: while starting, or while running."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in containers:  # init containers and sidecars first, in their order
        wanted = _sum(running, container.requests or {})
        if container.kind is ContainerKind.INIT:
            peak = _max(peak, wanted)
        else:
            running = wanted
    return _max(peak, running)


def _sum(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}


def _max(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: max(a.get(name, 0), b.get(name, 0)) for name in {**a, **b}}
