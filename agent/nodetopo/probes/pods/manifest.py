"""The pods that a manifest would create, as the API server would complete them."""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.errors import DecodeError, InputError, closest
from nodetopo.formats.document import load_all, repeated_keys
from nodetopo.formats.fields import (
    Object,
    count_at,
    dig,
    mappings,
    object_at,
    path_of,
    text,
    unexpected,
)
from nodetopo.formats.placeholders import RENDER, bare_expression
from nodetopo.model.kubernetes import Release
from nodetopo.model.pod import Pod
from nodetopo.probes.pods.added_labels import added_labels
from nodetopo.probes.pods.affinity import (
    Company,
    are_apart,
    company_of,
    mates_of,
    open_questions,
)
from nodetopo.probes.pods.checked import Kind, check_object, check_spec, check_template, kind_of
from nodetopo.probes.pods.defaults import (
    LIMIT_RANGE,
    Defaults,
    created,
    defaulted,
    defaults_from_object,
)
from nodetopo.probes.pods.objects import pod_from_object
from nodetopo.probes.pods.places import (
    ELSEWHERE,
    PLACES,
    VOLCANO,
    VOLCANO_JOB,
    TemplatePlace,
)
from nodetopo.probes.pods.resources import check_resources, exact_amounts, exact_pod

MAX_BYTES = 1 << 20
"""Largest manifest read; the API server accepts objects of 1.5 MiB at most."""

MAX_PODS = 1000
"""Most pods and pod templates of one manifest."""

MAX_REPLICAS = 1 << 31
"""Counts of replicas are int32 in all of these objects."""

_LIST = "List"

_ALIKE = 0.85
"""Similarity from which a kind counts as misspelt; for ``Service`` and ``RayService`` it is 0.82.
Capitals do not matter.
"""

_SHOWN, _KINDS_SHOWN = 63, 3
"""Characters of a kind, and kinds, that a message repeats."""


class _Planned(Struct, kw_only=True):
    """A pod that a document would create."""

    pod: Pod
    # Its amounts as :mod:`nodetopo.probes.pods.resources` checks them, not yet completed.
    stated: Pod
    path: str  # where in the document it is
    title: str = ""  # of the document
    company: Company  # which pods it shares a node with


class _Contents(Struct):
    """The content of the documents so far; the kinds without a pod in order."""

    pods: list[_Planned] = field(default_factory=list)
    others: dict[str, None] = field(default_factory=dict)
    ranges: list[Defaults] = field(default_factory=list)
    cures: list[str] = field(default_factory=list)


class Manifest(NamedTuple):
    """The pods of a manifest."""

    pods: tuple[Pod, ...]  # one for each pod template
    companies: tuple[Company, ...]  # by the position of the pod
    warnings: tuple[str, ...]  # what the manifest loses on its way to the API server; sentences

    def are_apart(self, one: int, other: int) -> bool:
        """Return whether anti-affinity keeps two pods, or replicas of one, off one node.

        False where that is not known, which :attr:`questions` says.
        """
        return bool(are_apart(self.companies[one], self.companies[other]))

    def mates(self, at: int) -> tuple[tuple[int, ...], ...]:
        """Return the pods that affinity keeps the pod at position *at* with, for each term."""
        return mates_of(at, self.companies)

    @property
    def questions(self) -> Iterator[str]:
        """What the manifest leaves open about affinity, a sentence a pod."""
        names = [f"{pod.namespace}/{pod.name}" for pod in self.pods]
        return open_questions(self.companies, names)


def pods_from_manifest(text: str, server: Release | None = None) -> tuple[Pod, ...]:
    """Return the pods of :func:`read_manifest`, with its errors."""
    return read_manifest(text, server).pods


def read_manifest(text: str, server: Release | None = None) -> Manifest:
    """Return the pods of all documents in *text*.

    Requests are defaulted from limits, as the API server does before a kubelet sees the pod, and by
    the LimitRange objects of the same manifest; others of the namespace are unknown here. Documents
    that carry no pod, such as a Service, are skipped.

    Args:
        server: the release of the API server; if unknown, one up to 1.36 is assumed.

    Raises:
        InputError: not YAML, no pod in it, a field that cannot be used, or something that the API
            server refuses, in the document or in the pods that it would create; the text names the
            document and the field.
    """
    if len(text) > MAX_BYTES:
        raise InputError(f"the manifest is larger than {MAX_BYTES >> 20} MiB", "split it")
    try:
        warnings = _lost(text)
        documents = [it for it in load_all(text, may_repeat=True) if it is not None]
    except ValueError as error:
        problem, cure = f"the manifest cannot be used: {error}", "correct it"
        if (found := bare_expression(text)) is not None:
            problem, cure = f"{problem}; line {found[0]} has the placeholder {found[1]}", RENDER
        raise InputError(problem, cure) from None
    contents = _Contents()
    for number, document in enumerate(documents, start=1):
        names = (dig(document, "kind"), dig(document, "metadata", "name"))
        title = " ".join(name[:_SHOWN] for name in names if name and isinstance(name, str))
        title = f"document {number} ({title})" if title else f"document {number}"
        before = len(contents.pods)
        try:
            _read(document, contents)
        except DecodeError as error:
            raise _unusable(title, error) from None
        for planned in contents.pods[before:]:
            planned.title = title
    if not contents.pods:
        kinds = [kind[:_SHOWN] for kind in contents.others]
        more = ", …" if len(kinds) > _KINDS_SHOWN else ""
        instead = f"only {', '.join(kinds[:_KINDS_SHOWN])}{more}" if kinds else "it is empty"
        cure = contents.cures[0] if contents.cures else f"give one of: {', '.join(PLACES)}"
        raise InputError(f"no pod in the manifest, {instead}", cure)
    pods = (_completed(planned, contents.ranges, server) for planned in contents.pods)
    return Manifest(tuple(pods), tuple(it.company for it in contents.pods), warnings)


def _lost(text: str) -> tuple[str, ...]:
    """Return what *text* loses by keys that stand twice."""
    try:
        load_all(text)
    except ValueError:
        return tuple(repeated_keys(text))
    return ()


def _completed(planned: _Planned, ranges: Iterable[Defaults], server: Release | None) -> Pod:
    """Return the pod as the API server would store it."""
    own = [limits for limits in ranges if limits.namespace == planned.pod.namespace]
    exact = [
        replace(
            limits, requests=exact_amounts(limits.requests), limits=exact_amounts(limits.limits)
        )
        for limits in own
    ]
    try:
        check_resources(created(planned.stated, exact, server))
    except DecodeError as error:
        whose = " (of its pods)" if planned.pod.owner_kind else ""
        path = path_of(planned.path, error.path) if planned.path else error.path
        placed = DecodeError(path, f"{error.problem}{whose}", error.cure)
        raise _unusable(planned.title, placed) from None
    return defaulted(planned.pod, own, server)


def _unusable(title: str, error: DecodeError) -> InputError:
    cure = error.cure or "correct the manifest"
    return InputError(f"{title}: {DecodeError(error.path, error.problem)}", cure)


def _read(document: Any, contents: _Contents, expected: str | None = None) -> None:
    """Add *document* to *contents*; *expected* is its kind where it does not say."""
    if not isinstance(document, Mapping):
        raise unexpected("", "an object", document)
    kind = document.get("kind", expected)
    if not isinstance(kind, str):
        raise DecodeError("kind", "missing, or not a text")
    is_volcano = kind == "Job" and str(document.get("apiVersion")).startswith(VOLCANO)
    if kind.endswith(_LIST) and isinstance(document.get("items"), list):
        for position, item in enumerate(document["items"]):
            at, before = f"items[{position}]", len(contents.pods)
            try:
                _read(item, contents, kind.removesuffix(_LIST) or None)
            except DecodeError as error:
                raise error.under(at) from None
            for planned in contents.pods[before:]:
                planned.path = path_of(at, planned.path) if planned.path else at
    elif kind == LIMIT_RANGE:
        contents.others[kind] = None
        contents.ranges.append(defaults_from_object(document))
    elif places := VOLCANO_JOB if is_volcano else PLACES.get(kind, ()):
        found = [template for place in places for template in templates(document, place)]
        known = None if is_volcano else kind_of({"kind": kind, **document})
        if known is not None:
            check_object({"kind": kind, **document}, known)
        contents.pods.extend(
            _planned(document, kind, template, known, is_volcano=is_volcano) for template in found
        )
        if len(contents.pods) > MAX_PODS:
            raise DecodeError("", f"more than {MAX_PODS} pods", "split the manifest")
    elif kind in ELSEWHERE:
        contents.others[kind] = None
        contents.cures.append(f"a {kind} does not hold its pods: {ELSEWHERE[kind]}")
    else:
        _refuse_hidden_pods(document, kind)
        contents.others[kind] = None


def _refuse_hidden_pods(document: Object, kind: str) -> None:
    """Raise for a misspelt kind, and for a kind with pods in an unknown position."""
    known = {kind.lower(): kind for kind in PLACES}
    close = closest(kind[:100].lower(), tuple(known), cutoff=_ALIKE)
    if close:
        cure = f"did you mean {known[close]!r}?"
        raise DecodeError("kind", f"unknown kind {kind!r}", cure)
    waiting: list[Any] = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            if isinstance(value.get("containers"), list):
                cure = f"give the pods as one of: {', '.join(PLACES)}"
                raise DecodeError("kind", f"cannot read the pods of kind {kind[:_SHOWN]}", cure)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


class Template(Struct, frozen=True, kw_only=True):
    """A pod template, or the pod itself."""

    path: str  # where it is in the document
    content: Object
    role: str  # of its pods; empty if the document has only one kind of pod
    replicas: int | None  # number of pods in the document; None if missing


def _planned(
    document: Object, kind: str, template: Template, known: Kind | None, *, is_volcano: bool
) -> _Planned:
    """Return the pod of *template*; *known* is the kind if it is one of Kubernetes itself."""
    spec = template.content["spec"]
    if not template.path:
        metadata = object_at(document, "metadata", "")
        check_spec(spec, "spec", is_pod=True, is_stored=bool(metadata.get("uid")))
        stated = exact_pod(spec, "spec")
        pod = pod_from_object(document)
        company = company_of(pod.namespace, metadata, spec)
        return _Planned(pod=pod, stated=stated, path="", company=company)
    at = template.path
    claims: tuple[str, ...] = ()
    if kind == "StatefulSet":
        claims = tuple(
            text(item, "metadata", "name") or ""
            for item in mappings(document, "spec", "volumeClaimTemplates")
        )
    if known is not None:
        check_template(template.content, at, known)
    check_spec(spec, f"{at}.spec", is_pod=False, is_whole=known is not None, claims=claims)
    stated = exact_pod(spec, f"{at}.spec")
    check_resources(stated)
    inner = object_at(template.content, "metadata", at)
    own = object_at(document, "metadata", "")
    metadata = {key: own.get(key) for key in ("name", "generateName", "namespace")}
    if template.role and isinstance(metadata["name"], str):
        metadata["name"] = f"{metadata['name']}-{template.role}"
    # A template has no name: its pods are named after the controller.
    metadata["annotations"] = inner.get("annotations")
    try:
        pod = pod_from_object({"metadata": metadata, "spec": spec})
    except DecodeError as error:
        is_inside = not error.path.startswith("metadata")
        raise error.under(at) if is_inside else error from None
    name = text(own, "name")
    added = added_labels(kind, name, template.role, is_volcano=is_volcano)
    return _Planned(
        pod=replace(pod, owner_kind=kind, replicas=template.replicas),
        stated=stated,
        path="",
        company=company_of(pod.namespace, inner, spec, added),
    )


class _Step(Struct, frozen=True, kw_only=True):
    """One object on the way down to a template."""

    pattern: str  # its path with ``[]`` and ``{}``, as a :class:`TemplatePlace` writes it
    path: str  # its real path
    content: Any
    key: str = ""  # its key in a map


def templates(document: Object, place: TemplatePlace) -> Iterator[Template]:
    """Yield the templates at *place* of *document*, in order.

    Raises:
        DecodeError: something on the way is malformed, or is absent though required.
    """
    for way in _ways([_Step(pattern="", path="", content=document)], place):
        last = way[-1]
        if not isinstance(last.content.get("spec"), Mapping):
            raise DecodeError(path_of(last.path, "spec"), "missing, or not an object")
        role = place.role or next((step.key.lower() for step in way if step.key), "")
        if place.role.startswith("."):
            names = (step.content.get(place.role[1:]) for step in reversed(way[1:-1]))
            role = next((name for name in names if name and isinstance(name, str)), "")
        yield Template(
            path=last.path,
            content=last.content,
            role=role,
            replicas=_replicas(way, place),
        )


def _ways(way: list[_Step], place: TemplatePlace) -> Iterator[list[_Step]]:
    """Yield every way down the rest of the template's path, the objects on it included."""
    here = way[-1]
    rest = place.template[len(here.pattern) :].lstrip(".")
    if not rest:
        yield way
        return
    name = rest.partition(".")[0]
    field = name.rstrip("[]{}")
    pattern, path = path_of(here.pattern, name), path_of(here.path, field)
    value = here.content.get(field)
    if value is None:
        below = []
    elif name.endswith("[]") and isinstance(value, list):
        below = [(f"{path}[{position}]", item, "") for position, item in enumerate(value)]
    elif name.endswith("{}") and isinstance(value, Mapping):
        below = [(f"{path}.{key}", item, str(key)) for key, item in value.items()]
    else:
        below = [(path, value, "")]
    if not below and not place.is_optional:
        problem = "missing, or not an object" if name.isidentifier() else "missing, or empty"
        raise DecodeError(path, problem)
    for inner, item, _ in below:
        if not isinstance(item, Mapping):
            raise DecodeError(inner, "missing, or not an object")
    for inner, item, key in below:
        step = _Step(pattern=pattern, path=inner, content=item, key=key)
        yield from _ways([*way, step], place)


def _replicas(way: list[_Step], place: TemplatePlace) -> int | None:
    counts = []
    for path in place.counts:
        parent, _, field = path.rpartition(".")
        holder = next(step for step in way if step.pattern == parent)
        counts.append(count_at(holder.content, field, holder.path))
    if place.leader and counts[-1] and way[-2].content.get(place.leader) is not None:
        counts[-1] -= 1
    stated = [count for count in counts if count is not None]
    return min(prod(stated), MAX_REPLICAS) if stated else None
