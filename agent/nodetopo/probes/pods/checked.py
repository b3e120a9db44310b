"""The API server's checks of pods and their controllers, except amounts.

Refused objects never reach a kubelet. Checked are the fields that determine a pod's containers and
identity: names, labels and selectors, images, volumes and their mounts, claims, overhead, restart
policies, counts. Not checked are ports, probes, variables, security contexts, affinities and the
sources of volumes.

Facts from Kubernetes 1.36: ``ValidatePodCreate``, ``ValidatePodSpec``, ``ValidatePodTemplateSpec``
and ``ValidateReplicationController`` in pkg/apis/core/validation/validation.go; pkg/apis/apps and
pkg/apis/batch, each validation/validation.go and v1/defaults.go; ``generateSelector`` in
pkg/registry/batch/job/strategy.go. Policies and rules of single containers follow the feature gates
ContainerRestartRules (on from 1.35) and RestartAllContainersOnContainerExits (from 1.36).
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from msgspec import Struct

from nodetopo.errors import DecodeError
from nodetopo.formats.fields import Object, count_at, flag_at, items, object_at, path_of, text_at
from nodetopo.probes.pods.claims import check_claims
from nodetopo.probes.pods.names import (
    MAX_LABEL,
    check_annotations,
    check_label,
    check_metadata,
    check_selector,
    check_subdomain,
    is_empty,
    labels_at,
    refused,
    required,
    selects,
)
from nodetopo.probes.pods.resources import check_overhead

_ANY = ("Always", "OnFailure", "Never")
"""Restart policies of a pod and, by rule, of a container."""

_ALWAYS = ("Always",)
_TO_COMPLETION = ("OnFailure", "Never")

_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")
_MOST_RULES, _MOST_CODES = 20, 255
"""Of one container: rules for restarts, and exit codes in each."""

_MOST = (1 << 31) - 1
"""Counts and seconds are int32 in all of these objects."""

_MAX_CRON_JOB = 52
"""Characters of a CronJob's name: its Jobs add eleven."""

_JOB_NAMES = ("job-name", "batch.kubernetes.io/job-name")
_JOB_UIDS = ("controller-uid", "batch.kubernetes.io/controller-uid")
"""Labels that the server gives to the pods of a Job."""

_JOB_COUNTS = ("parallelism", "completions", "backoffLimit")
_CONTROLLER_COUNTS = ("replicas", "minReadySeconds")


class Kind(Struct, frozen=True, kw_only=True):
    """The API server's facts about one of its kinds."""

    api: str  # the ``apiVersion``
    policies: tuple[str, ...] = _ANY  # restart policies that its pods can have
    spec: str = "spec"  # the path of the object that has the template


_CRON_SPEC = "spec.jobTemplate.spec"

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "Pod": Kind(api="v1"),
        "PodTemplate": Kind(api="v1"),
        "ReplicationController": Kind(api="v1", policies=_ALWAYS),
        **{
            name: Kind(api="apps/v1", policies=_ALWAYS)
            for name in ("ReplicaSet", "Deployment", "StatefulSet", "DaemonSet")
        },
        "Job": Kind(api="batch/v1", policies=_TO_COMPLETION),
        "CronJob": Kind(api="batch/v1", policies=_TO_COMPLETION, spec=_CRON_SPEC),
    }
)
"""The kinds with pods that Kubernetes itself has."""

_GROUPS = ("", "apps", "batch", "extensions")
"""API groups of these kinds, now and before."""


def kind_of(document: Object) -> Kind | None:
    """Return the kind of *document* if it is one of Kubernetes itself; else None.

    Raises:
        DecodeError: it is, in a version that the API server no longer serves.
    """
    name, version = text_at(document, "kind", "") or "", text_at(document, "apiVersion", "")
    kind = KINDS.get(name)
    if kind is None or version is None:
        return kind
    group = version.rpartition("/")[0]
    if group not in _GROUPS:
        return None
    if version != kind.api:
        message = f'no matches for kind "{name}"'
        raise refused("apiVersion", version, message, f"write apiVersion: {kind.api}")
    return kind


def check_object(document: Object, kind: Kind) -> None:
    """Raise for a name, a selector or a count of *document* that the API server refuses."""
    name = document["kind"]
    # Of a ReplicationController 1.36 checks the name alone, by its new kind of rules.
    checks_prefix = name != "ReplicationController"
    own = check_metadata(document, is_label=name == "StatefulSet", checks_prefix=checks_prefix)
    if name in ("Pod", "PodTemplate"):
        return
    spec = document
    for field in kind.spec.split("."):
        spec = object_at(spec, field, "")
    _check_counts(spec, name, kind)
    template = object_at(spec, "template", kind.spec)
    metadata, at = object_at(template, "metadata", ""), f"{kind.spec}.template.metadata"
    labels = labels_at(metadata, "labels", at)
    if kind.policies is _TO_COMPLETION:
        _check_job(document, spec, kind, own, labels)
    elif name == "ReplicationController":
        # The labels of the template replace a selector.
        stated = {"matchLabels": object_at(spec, "selector", "spec") or labels}
        _check_selected(stated, labels, name)
    else:
        selector = object_at(spec, "selector", "spec")
        check_selector(selector, "spec.selector")
        _check_selected(selector, labels, name)


def check_template(template: Object, at: str, kind: Kind) -> None:
    """Raise for refused fields of a pod *template*, beyond its spec, at the path *at*."""
    metadata = object_at(template, "metadata", at)
    labels_at(metadata, "labels", f"{at}.metadata")
    check_annotations(metadata, f"{at}.metadata")
    spec, path = object_at(template, "spec", at), f"{at}.spec"
    if kind.policies is _ALWAYS and spec.get("activeDeadlineSeconds") is not None:
        message = "activeDeadlineSeconds is not Supported"
        raise refused(
            f"{path}.activeDeadlineSeconds",
            spec["activeDeadlineSeconds"],
            message,
            "remove it: such pods run for ever",
        )
    stated = text_at(spec, "restartPolicy", path) or "Always"
    if stated not in kind.policies:
        values = ", ".join(f'"{policy}"' for policy in kind.policies)
        message = f"Unsupported value: supported values: {values}"
        cure = f"write restartPolicy: {kind.policies[-1]}"
        raise refused(f"{path}.restartPolicy", stated, message, cure)


def check_spec(
    spec: Object,
    at: str,
    *,
    is_pod: bool,
    is_whole: bool = True,
    is_stored: bool = False,
    claims: Collection[str] = (),
) -> None:
    """Raise for fields that the API server refuses in a pod's *spec*, at the path *at*.

    Args:
        is_pod: whether it belongs to a pod, not a template.
        is_whole: whether no operator completes it, e.g. with an image or a volume.
        is_stored: whether the API server has the pod already, as ``kubectl get`` prints it; only
            such a pod has ephemeral containers.
        claims: names of volumes that a StatefulSet adds.
    """
    if is_whole and not spec.get("containers"):
        raise required(path_of(at, "containers"), "a pod has at least one container")
    volumes = _check_volumes(spec, at) | set(claims)
    check_claims(spec, at, is_whole=is_whole)
    check_overhead(spec, at, is_whole=is_whole and not is_stored)
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        for path, item in items(spec, field, at):
            name = text_at(item, "name", path) or ""
            if not name:
                raise DecodeError(f"{path}.name", "missing", "name the container")
            check_label(name, f"{path}.name")
            if name in names:
                raise refused(f"{path}.name", name, "Duplicate value", "name each container once")
            names.add(name)
            _check_image(item, path, is_whole=is_whole)
            _check_restarts(item, path)
            if is_whole:
                _check_mounts(item, path, volumes)
    if spec.get("ephemeralContainers") and not is_stored:
        message = "cannot be set on create" if is_pod else "not allowed in pod template"
        cure = "remove them, and use `kubectl debug` on the running pod"
        raise refused(path_of(at, "ephemeralContainers"), "ephemeral containers", message, cure)
    policy = text_at(spec, "restartPolicy", at)
    if policy and policy not in _ANY:
        message = 'Unsupported value: supported values: "Always", "OnFailure", "Never"'
        raise refused(f"{at}.restartPolicy", policy, message, f"use one of {', '.join(_ANY)}")
    labels_at(spec, "nodeSelector", at)
    for field, check in (
        ("hostname", check_label),
        ("subdomain", check_label),
        ("serviceAccountName", check_subdomain),
        ("nodeName", check_subdomain),
        ("priorityClassName", check_subdomain),
    ):
        if value := text_at(spec, field, at):
            check(value, path_of(at, field))
    runtime = text_at(spec, "runtimeClassName", at)
    if runtime is not None:
        check_subdomain(runtime, path_of(at, "runtimeClassName"))
    deadline = _count(spec, "activeDeadlineSeconds", at)
    if deadline == 0:
        message = f"must be between 1 and {_MOST}, inclusive"
        raise refused(f"{at}.activeDeadlineSeconds", deadline, message, "give at least one second")


def _check_volumes(spec: Object, at: str) -> set[str]:
    """Return the names of a pod's volumes after checking them."""
    names: set[str] = set()
    for path, item in items(spec, "volumes", at):
        name = text_at(item, "name", path) or ""
        if not name:
            raise required(f"{path}.name", "name the volume")
        check_label(name, f"{path}.name")
        if name in names:
            raise refused(f"{path}.name", name, "Duplicate value", "name each volume once")
        names.add(name)
    return names


def _check_mounts(item: Object, at: str, volumes: Collection[str]) -> None:
    places: set[str] = set()
    for path, mount in items(item, "volumeMounts", at):
        name = text_at(mount, "name", path) or ""
        place = text_at(mount, "mountPath", path) or ""
        if name not in volumes:
            cure = "name one of the pod's volumes, or add it to spec.volumes"
            raise refused(f"{path}.name", name, "Not found", cure)
        if not place:
            raise required(f"{path}.mountPath", "say where to mount it")
        if place in places:
            message = "must be unique"
            raise refused(f"{path}.mountPath", place, message, "mount each volume at its own path")
        places.add(place)


def _check_image(item: Object, at: str, *, is_whole: bool) -> None:
    image = text_at(item, "image", at) or ""
    if is_whole and not image:
        raise required(f"{at}.image", "name the image of the container")
    if image != image.strip():  # of a template the server takes it, but not of its pods
        message = "must not have leading or trailing whitespace"
        raise refused(f"{at}.image", image, message, "remove it")


def _check_restarts(item: Object, at: str) -> None:
    """Raise for the restart policy of one container, or a rule for its restarts."""
    policy = text_at(item, "restartPolicy", at)
    rules = list(items(item, "restartPolicyRules", at))
    if policy is None and rules:
        raise required(f"{at}.restartPolicy", "restart rules take a restartPolicy beside them")
    if policy is not None and policy not in _ANY:
        message = 'Unsupported value: supported values: "Always", "Never", "OnFailure"'
        raise refused(f"{at}.restartPolicy", policy, message, f"use one of {', '.join(_ANY)}")
    if len(rules) > _MOST_RULES:
        message = f"must have at most {_MOST_RULES} items"
        raise refused(f"{at}.restartPolicyRules", len(rules), message, "merge some of them")
    for path, rule in rules:
        action = text_at(rule, "action", path) or ""
        if action not in _ACTIONS:
            message = 'Unsupported value: supported values: "Restart", "RestartAllContainers"'
            raise refused(f"{path}.action", action, message, f"use {' or '.join(_ACTIONS)}")
        if rule.get("exitCodes") is None:
            raise required(f"{path}.exitCodes", "say for which exit codes")
        codes = object_at(rule, "exitCodes", path)
        operator = text_at(codes, "operator", f"{path}.exitCodes") or ""
        if operator not in _OPERATORS:
            message = 'Unsupported value: supported values: "In", "NotIn"'
            place = f"{path}.exitCodes.operator"
            raise refused(place, operator, message, f"use {' or '.join(_OPERATORS)}")
        values = codes.get("values") or ()
        if len(values) > _MOST_CODES:
            message = f"must have at most {_MOST_CODES} items"
            raise refused(
                f"{path}.exitCodes.values", len(values), message, "use NotIn with the rest"
            )


def _check_counts(spec: Object, name: str, kind: Kind) -> None:
    is_job = kind.policies is _TO_COMPLETION
    for field in _JOB_COUNTS if is_job else _CONTROLLER_COUNTS:
        if name != "DaemonSet" or field != "replicas":
            _count(spec, field, kind.spec)
    if is_job:
        count_at(spec, "activeDeadlineSeconds", kind.spec)  # 64 bits wide, unlike that of a pod


def _count(parent: Object, field: str, at: str) -> int | None:
    count = count_at(parent, field, at)
    if count is not None and count > _MOST:
        raise DecodeError(path_of(at, field), f"a number above {_MOST}", "lower it")
    return count


def _check_selected(selector: Object, labels: Mapping[str, str], name: str) -> None:
    """Raise for the *selector* of a controller that does not select its own pods."""
    if is_empty(selector):
        cure = "write spec.selector.matchLabels with the labels of spec.template.metadata"
        raise required("spec.selector", cure)
    if not selects(selector, labels):
        message = "`selector` does not match template `labels`"
        cure = f"give the {name}'s template the labels of its selector"
        stated = " ".join(f"{key}={value}" for key, value in labels.items()) or "no labels"
        raise refused("spec.template.metadata.labels", stated, message, cure)


def _check_job(
    document: Object, spec: Object, kind: Kind, name: str, labels: Mapping[str, str]
) -> None:
    """Raise for invalid fields of a Job, or of a CronJob's Job."""
    if kind.spec == _CRON_SPEC:
        _check_cron_job(document, spec, name)
    else:
        _check_job_selector(document, spec, name, labels)
    mode = text_at(spec, "completionMode", kind.spec)
    if mode not in (None, "NonIndexed", "Indexed"):
        message = 'Unsupported value: supported values: "NonIndexed", "Indexed"'
        raise refused(f"{kind.spec}.completionMode", mode, message, "use NonIndexed or Indexed")
    completions = spec.get("completions")
    if mode == "Indexed" and completions is None:
        cure = "say how many indexes the Job has"
        raise required(f"{kind.spec}.completions", cure)
    if mode == "Indexed" and completions and kind.spec == "spec":
        # The pods of such a Job are named after it, and their hosts after them.
        check_label(f"{name}-{completions - 1}", "metadata.name")


def _check_cron_job(document: Object, spec: Object, name: str) -> None:
    if len(name) > _MAX_CRON_JOB:
        message = f"must be no more than {_MAX_CRON_JOB} characters"
        raise refused("metadata.name", name, message, "shorten it")
    if not text_at(object_at(document, "spec", ""), "schedule", "spec"):
        raise required("spec.schedule", "say when the Jobs run, for instance '@daily'")
    if spec.get("selector") is not None:
        message = "`selector` will be auto-generated"
        raise refused(f"{_CRON_SPEC}.selector", "a selector", message, "remove it")
    if flag_at(spec, "manualSelector", _CRON_SPEC):
        message = 'Unsupported value: supported values: "nil", "false"'
        raise refused(f"{_CRON_SPEC}.manualSelector", "true", message, "remove it")


def _check_job_selector(
    document: Object, spec: Object, name: str, labels: Mapping[str, str]
) -> None:
    """Raise for a selector that differs from the server's, unless it must be kept."""
    selector = object_at(spec, "selector", "spec")
    check_selector(selector, "spec.selector")
    if flag_at(spec, "manualSelector", "spec"):
        if spec.get("selector") is None:
            raise required("spec.selector", "state it, or remove manualSelector")
        if not selects(selector, labels):
            message = "`selector` does not match template `labels`"
            cure = "give the Job's template the labels of its selector"
            raise refused("spec.template.metadata.labels", dict(labels), message, cure)
        return
    if len(name) > MAX_LABEL:
        message = f"must be no more than {MAX_LABEL} characters as a label of its pods"
        raise refused("metadata.name", name, message, "shorten it")
    uid = text_at(object_at(document, "metadata", ""), "uid", "metadata") or ""
    expected = {**dict.fromkeys(_JOB_NAMES, name), **dict.fromkeys(_JOB_UIDS, uid)}
    for key, value in expected.items():
        if key in labels and (labels[key] != value or not value):
            at = f"spec.template.metadata.labels.{key}"
            message = f"must be {value!r}" if value else "must be the uid of the Job"
            raise refused(at, labels[key], message, "remove it: the server gives it to the pods")
    if not selects(selector, expected):
        message = "`selector` not auto-generated"
        cure = "remove it: the server makes one, unless manualSelector is true"
        raise refused("spec.selector", "a selector of your own", message, cure)
