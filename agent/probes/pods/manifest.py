"""The pods that a manifest would create, as the API server would complete them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from agent.errors import DecodeError, InputError
from agent.formats.fields import Object, object_at
from agent.formats.yaml import load_all
from agent.model.pod import Pod
from agent.probes.pods.defaults import defaulted
from agent.probes.pods.objects import pod_from_object
from agent.probes.pods.pod_manifest_kinds import ELSEWHERE, kinds, places_of
from agent.probes.pods.pod_manifest_limits import LIMIT_RANGE, Defaults, defaults_from_object
from agent.probes.pods.pod_manifest_refused import check_amounts, check_limits
from agent.probes.pods.pod_manifest_templates import Template, templates

MAX_BYTES = 1 << 20
"""Largest manifest read; the API server accepts objects of 1.5 MiB at most."""

MAX_PODS = 1000
"""Most pods and pod templates of one manifest."""

_LIST = "List"
_ALIKE = 0.85
"""From which likeness on a kind is taken for a misspelt one; that of ``Service`` and ``RayService``
is 0.82. Capitals make no difference."""

_SHOWN, _KINDS_SHOWN = 63, 3
"""Characters of a kind, and kinds, that a message repeats."""


@dataclass(slots=True)
class _Found:
    """What the documents held so far; of those without a pod the kinds, in order."""

    pods: list[Pod] = field(default_factory=list)
    others: dict[str, None] = field(default_factory=dict)
    ranges: list[Defaults] = field(default_factory=list)
    cures: list[str] = field(default_factory=list)


def pods_from_manifest(text: str) -> tuple[Pod, ...]:
    """Return the pods of all documents in *text*, one for each pod template.

    Requests are defaulted from limits, as the API server does before a kubelet sees the
    pod, and by the LimitRange objects of the same manifest; others of the namespace are not
    known here. Documents that carry no pod, such as a Service, are passed over.

    Raises:
        InputError: not YAML, no pod in it, a field that cannot be used, or resources that the
            API server refuses; the text names the document and the field.
    """
    found = _Found()
    for number, document in enumerate(_documents(text), start=1):
        where = f"document {number}{_title(document)}"
        try:
            _read(document, found)
        except DecodeError as error:
            cure = error.cure or "correct the manifest"
            raise InputError(f"{where}: {DecodeError(error.path, error.problem)}", cure) from None
    if not found.pods:
        cure = found.cures[0] if found.cures else f"give one of: {', '.join(kinds())}"
        raise InputError(f"no pod in the manifest, {_instead(found)}", cure)
    return tuple(_completed(pod, found.ranges) for pod in found.pods)


def _instead(found: _Found) -> str:
    """Return what a manifest without pods has."""
    others = [kind[:_SHOWN] for kind in found.others]
    more = ", …" if len(others) > _KINDS_SHOWN else ""
    return f"only {', '.join(others[:_KINDS_SHOWN])}{more}" if others else "it is empty"


def _completed(pod: Pod, ranges: list[Defaults]) -> Pod:
    found = defaulted(pod, (one for one in ranges if one.namespace == pod.namespace))
    check_limits(found)
    return found


def _documents(text: str) -> list[Any]:
    if len(text) > MAX_BYTES:
        raise InputError(f"the manifest is larger than {MAX_BYTES >> 20} MiB", "split it")
    try:
        documents = load_all(text)
    except ValueError as error:
        raise InputError(f"the manifest cannot be used: {error}", "correct it") from None
    return [document for document in documents if document is not None]


def _title(document: Any) -> str:
    if not isinstance(document, Mapping):
        return ""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    known = [part for part in (document.get("kind"), name) if part and isinstance(part, str)]
    return f" ({' '.join(part[:_SHOWN] for part in known)})" if known else ""


def _read(document: Any, found: _Found, expected: str | None = None) -> None:
    """Add what *document* holds to *found*; *expected* is the kind of one that does not say."""
    if not isinstance(document, Mapping):
        raise DecodeError("", f"expected an object, found {type(document).__name__}")
    kind = document.get("kind", expected)
    if not isinstance(kind, str):
        raise DecodeError("kind", "missing, or not a text")
    if kind.endswith(_LIST) and isinstance(document.get("items"), list):
        for position, item in enumerate(document["items"]):
            _read_item(item, f"items[{position}]", found, kind.removesuffix(_LIST) or None)
    elif kind == LIMIT_RANGE:
        found.others[kind] = None
        found.ranges.append(defaults_from_object(document))
    elif places := places_of(kind, document.get("apiVersion")):
        for place in places:
            found.pods.extend(_pod(document, kind, each) for each in templates(document, place))
        if len(found.pods) > MAX_PODS:
            raise DecodeError("", f"more than {MAX_PODS} pods", "split the manifest")
    elif kind in ELSEWHERE:
        found.others[kind] = None
        found.cures.append(f"a {kind} does not hold its pods: {ELSEWHERE[kind]}")
    else:
        _refuse_hidden_pods(document, kind)
        found.others[kind] = None


def _read_item(item: Any, at: str, found: _Found, kind: str | None) -> None:
    try:
        _read(item, found, kind)
    except DecodeError as error:
        raise error.under(at) from None


def _pod(document: Object, kind: str, template: Template) -> Pod:
    if not template.path:
        check_amounts(template.content["spec"])
        return pod_from_object(document)
    inner = object_at(template.content, "metadata", template.path)
    metadata = {
        **_named(object_at(document, "metadata", ""), template.role),
        # A template has no name: its pods are named after the controller.
        "annotations": inner.get("annotations"),
    }
    try:
        check_amounts(template.content["spec"])
        pod = pod_from_object({"metadata": metadata, "spec": template.content["spec"]})
    except DecodeError as error:
        is_inside = not error.path.startswith("metadata")
        raise error.under(template.path) if is_inside else error from None
    return replace(pod, owner_kind=kind, replicas=template.replicas)


def _named(metadata: Object, role: str) -> dict[str, Any]:
    """Return those names in *metadata* that its pods have, with their *role*."""
    kept = {key: metadata.get(key) for key in ("name", "generateName", "namespace")}
    if role and isinstance(kept["name"], str):
        kept["name"] = f"{kept['name']}-{role}"
    return kept


def _refuse_hidden_pods(document: Object, kind: str) -> None:
    """Raise for a misspelt kind, and for one that carries pods in a place unknown to us."""
    known = {one.lower(): one for one in kinds()}
    close = get_close_matches(kind[:100].lower(), tuple(known), n=1, cutoff=_ALIKE)
    if close:
        cure = f"did you mean {known[close[0]]!r}?"
        raise DecodeError("kind", f"unknown kind {kind!r}", cure)
    if _has_containers(document):
        cure = f"give the pods as one of: {', '.join(kinds())}"
        raise DecodeError("kind", f"cannot read the pods of kind {kind[:_SHOWN]}", cure)


def _has_containers(document: Object) -> bool:
    waiting: list[Any] = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if isinstance(value.get("containers"), list):
                return True
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return False
