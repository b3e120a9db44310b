"""The pods that a manifest would create, as the API server would complete them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import prod
from types import MappingProxyType
from typing import Any

from agent.errors import DecodeError, InputError
from agent.formats.fields import Object, count_at, object_at, path_of
from agent.formats.yaml import load_all
from agent.model.pod import Pod
from agent.probes.pods.defaults import (
    LIMIT_RANGE,
    Defaults,
    check_amounts,
    check_limits,
    defaulted,
    defaults_from_object,
)
from agent.probes.pods.objects import pod_from_object

# Where the kinds of Kubernetes and of job operators keep their pods.
#
# From the API references of Kubernetes 1.36 (workload resources), JobSet v1alpha2, LeaderWorkerSet
# v1, Kubeflow Training Operator v1, MPI Operator v2beta1, Kubeflow Trainer v1alpha1 (runtimes),
# KubeRay v1, Volcano v1alpha1 and Argo Rollouts v1alpha1.
#
# A path names fields from the document down; ``[]`` behind one stands for each item of a list,
# ``{}`` for each value of a map.


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a kind keeps a pod template.

    Attributes:
        template: the path of the template.
        counts: paths whose product is the number of pods; each begins with fields of *template*.
            One that is absent counts as one.
        role: what the pods are, behind the document's name: a word, or with a dot in front the
            field beside the template, or above it, that names them. Of a map's values, its keys.
        leader: a template beside this one that takes one pod of the last count.
        is_optional: whether it may be absent.
    """

    template: str
    counts: tuple[str, ...] = ()
    role: str = ""
    leader: str = ""
    is_optional: bool = False


_REPLICATED = Place(template="spec.template", counts=("spec.replicas",))


_KUBEFLOW = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")


_FIELDS = ("pytorch", "tf", "mpi", "xgb", "paddle", "jax")


def _jobs(jobs: str) -> tuple[Place, ...]:
    """Return the place in a list of replicated jobs, of which each has a Job's template."""
    job = f"{jobs}.template.spec"
    counts = (f"{jobs}.replicas", f"{job}.parallelism")
    return (Place(template=f"{job}.template", counts=counts, role=".name"),)


def _ray(cluster: str, *others: Place) -> tuple[Place, ...]:
    group = f"{cluster}.workerGroupSpecs[]"
    workers = Place(
        template=f"{group}.template",
        counts=(f"{group}.replicas", f"{group}.numOfHosts"),
        role=".groupName",
        is_optional=True,
    )
    head = f"{cluster}.headGroupSpec.template"
    return (Place(template=head, role="head", is_optional=bool(others)), workers, *others)


def _group() -> tuple[Place, ...]:
    """Return the places of a LeaderWorkerSet, whose size counts the leader."""
    group = "spec.leaderWorkerTemplate"
    leader = f"{group}.leaderTemplate"
    counts = ("spec.replicas", f"{group}.size")
    return (
        Place(template=leader, counts=("spec.replicas",), role="leader", is_optional=True),
        Place(template=f"{group}.workerTemplate", counts=counts, leader="leaderTemplate"),
    )


PLACES: Mapping[str, tuple[Place, ...]] = MappingProxyType(
    {
        "Pod": (Place(template=""),),
        "PodTemplate": (Place(template="template"),),
        "ReplicationController": (_REPLICATED,),
        "ReplicaSet": (_REPLICATED,),
        "Deployment": (_REPLICATED,),
        "StatefulSet": (_REPLICATED,),
        "DaemonSet": (Place(template="spec.template"),),
        "Job": (Place(template="spec.template", counts=("spec.parallelism",)),),
        "CronJob": (
            Place(
                template="spec.jobTemplate.spec.template",
                counts=("spec.jobTemplate.spec.parallelism",),
            ),
        ),
        "JobSet": _jobs("spec.replicatedJobs[]"),
        "LeaderWorkerSet": _group(),
        **{
            kind: (
                Place(
                    template=f"spec.{field}ReplicaSpecs{{}}.template",
                    counts=(f"spec.{field}ReplicaSpecs{{}}.replicas",),
                ),
            )
            for kind, field in zip(_KUBEFLOW, _FIELDS, strict=True)
        },
        "TrainingRuntime": _jobs("spec.template.spec.replicatedJobs[]"),
        "ClusterTrainingRuntime": _jobs("spec.template.spec.replicatedJobs[]"),
        "RayCluster": _ray("spec"),
        "RayJob": _ray(
            "spec.rayClusterSpec",
            Place(template="spec.submitterPodTemplate", role="submitter", is_optional=True),
        ),
        "RayService": _ray("spec.rayClusterConfig"),
        "Rollout": (_REPLICATED,),
    }
)
"""Of each kind, by its name; of Volcano's Job see :data:`VOLCANO_JOB`."""


VOLCANO = "batch.volcano.sh/"
"""The API group whose Job is not the one of Kubernetes."""


VOLCANO_JOB = (
    Place(template="spec.tasks[].template", counts=("spec.tasks[].replicas",), role=".name"),
)


ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "TrainJob": "give the TrainingRuntime or ClusterTrainingRuntime that it names",
        "Workflow": "give the pods that it makes, as `kubectl get pods -o yaml` prints them",
    }
)
"""Kinds whose pods are described in another object, or by a program, and where to look."""


def places_of(kind: str, api_version: object) -> tuple[Place, ...]:
    """Return where a document of *kind* keeps its pods; nothing where that is not known."""
    if kind == "Job" and isinstance(api_version, str) and api_version.startswith(VOLCANO):
        return VOLCANO_JOB
    return PLACES.get(kind, ())


def kinds() -> Iterator[str]:
    """Yield the kinds whose pods can be read."""
    yield from PLACES


# The pod templates in one document, each with its place, its name and how often it is used.

MAX_REPLICAS = 1 << 31
"""Counts of replicas are int32 in all of these objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A pod template, or the pod itself.

    Attributes:
        path: where it is in the document.
        role: what its pods are; empty where the document has one kind of pod.
        replicas: how many pods the document asks for; ``None`` where it does not say.
    """

    path: str
    content: Object
    role: str
    replicas: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One object on the way down.

    Attributes:
        pattern: its path with ``[]`` and ``{}``, as a :class:`Place` writes it.
        path: its real path.
        key: under which it stood in a map.
    """

    pattern: str
    path: str
    content: Any
    key: str = ""


def templates(document: Object, place: Place) -> Iterator[Template]:
    """Yield the templates at *place* of *document*, in order.

    Raises:
        DecodeError: something on the way has another shape, or is absent though required.
    """
    for way in _ways([_Step(pattern="", path="", content=document)], place):
        found = way[-1]
        if not isinstance(found.content.get("spec"), Mapping):
            raise DecodeError(path_of(found.path, "spec"), "missing, or not an object")
        yield Template(
            path=found.path,
            content=found.content,
            role=_role(way, place),
            replicas=_replicas(way, place),
        )


def _ways(way: list[_Step], place: Place) -> Iterator[list[_Step]]:
    """Yield every way down the rest of the template's path, the objects on it included."""
    here = way[-1]
    rest = place.template[len(here.pattern) :].lstrip(".")
    if not rest:
        yield way
        return
    name = rest.partition(".")[0]
    below = _below(here, name)
    if not below and not place.is_optional:
        problem = "missing, or not an object" if name.isidentifier() else "missing, or empty"
        raise DecodeError(path_of(here.path, name.rstrip("[]{}")), problem)
    for step in below:
        yield from _ways([*way, step], place)


def _below(here: _Step, name: str) -> list[_Step]:
    field = name.rstrip("[]{}")
    pattern, path = path_of(here.pattern, name), path_of(here.path, field)
    value = here.content.get(field)
    found: list[_Step]
    if value is None:
        return []
    if name.endswith("[]") and isinstance(value, list):
        found = [
            _Step(pattern=pattern, path=f"{path}[{position}]", content=item)
            for position, item in enumerate(value)
        ]
    elif name.endswith("{}") and isinstance(value, Mapping):
        found = [
            _Step(pattern=pattern, path=f"{path}.{key}", content=item, key=str(key))
            for key, item in value.items()
        ]
    else:
        found = [_Step(pattern=pattern, path=path, content=value)]
    _check(found)
    return found


def _check(steps: list[_Step]) -> None:
    for step in steps:
        if not isinstance(step.content, Mapping):
            raise DecodeError(step.path, "missing, or not an object")


def _role(way: list[_Step], place: Place) -> str:
    if not place.role.startswith("."):
        return place.role or next((step.key.lower() for step in way if step.key), "")
    field = place.role[1:]
    names = (step.content.get(field) for step in reversed(way[1:-1]))
    return next((name for name in names if name and isinstance(name, str)), "")


def _replicas(way: list[_Step], place: Place) -> int | None:
    counts = [_count(way, path) for path in place.counts]
    if place.leader and counts[-1] and way[-2].content.get(place.leader) is not None:
        counts[-1] -= 1
    stated = [count for count in counts if count is not None]
    return min(prod(stated), MAX_REPLICAS) if stated else None


def _count(way: list[_Step], path: str) -> int | None:
    parent, _, field = path.rpartition(".")
    holder = next(step for step in way if step.pattern == parent)
    return count_at(holder.content, field, holder.path)


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
