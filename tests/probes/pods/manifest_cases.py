"""Manifests, each with one thing changed, that the API server accepts or refuses.

``api_server_answers.json`` beside this file has what a real one answered:
``scripts/generate manifests`` records it.
"""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Object = dict[str, Any]

ANSWERS = Path(__file__).with_name("api_server_answers.json")
"""Name of a case → null where it is accepted, else the causes, each with its field."""

GPU = "nvidia.com/gpu"
LONG = "a" * 64
"""One character more than a DNS label has."""

LABELS = {"app": "x"}
REMOVED = object()
"""In the place of a value: the field is removed."""


def container(name: str = "app") -> Object:
    """Return a container that requests a little of everything."""
    amounts = {"cpu": "4", "memory": "8Gi", GPU: 1}
    return {"name": name, "image": "lab/none", "resources": {"limits": amounts}}


def pod() -> Object:
    """Return a pod that the API server accepts."""
    spec = {"containers": [container()], "automountServiceAccountToken": False}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def template(**spec: object) -> Object:
    """Return a pod template with the labels of its controller."""
    return {"metadata": {"labels": dict(LABELS)}, "spec": {**pod()["spec"], **spec}}


def controller(kind: str) -> Object:
    """Return a controller of *kind* that the API server accepts."""
    version = {"ReplicationController": "v1", "PodTemplate": "v1"}.get(kind, "apps/v1")
    made: Object = {"kind": kind, "metadata": {"name": "c"}}
    job = {"template": template(restartPolicy="Never"), "parallelism": 2}
    if kind == "Job":
        return {**made, "apiVersion": "batch/v1", "spec": job}
    if kind == "CronJob":
        timed = {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}}
        return {**made, "apiVersion": "batch/v1", "spec": timed}
    if kind == "PodTemplate":
        return {**made, "apiVersion": version, "template": template()}
    selector = dict(LABELS) if kind == "ReplicationController" else {"matchLabels": dict(LABELS)}
    spec: Object = {"selector": selector, "template": template()}
    if kind != "DaemonSet":
        spec["replicas"] = 3
    return {**made, "apiVersion": version, "spec": spec}


CONTROLLERS = (
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
    "PodTemplate",
)


def template_path(kind: str) -> str:
    """Return the path of the pod template of a controller."""
    known = {"CronJob": "spec.jobTemplate.spec.template", "PodTemplate": "template"}
    return known.get(kind, "spec.template")


def changed(base: Object, changes: Mapping[str, object]) -> Object:
    """Return *base* with a value put at each path, in which numbers count items of lists.

    A key with dots stands in brackets at the end.
    """
    made = copy.deepcopy(base)
    for path, value in changes.items():
        way = path.partition("[")[0].split(".")
        last = path.partition("[")[2].removesuffix("]") or way.pop()
        here: Any = made
        for step in way:
            if not isinstance(here, list) and here.get(step) is None:
                here[step] = {}
            here = here[int(step) if isinstance(here, list) else step]
        if isinstance(here, list):
            here[int(last)] = copy.deepcopy(value)
        elif value is REMOVED:
            here.pop(last, None)
        else:
            here[last] = copy.deepcopy(value)
    return made


def _pods(cases: Mapping[str, Mapping[str, object]]) -> dict[str, Object]:
    return {name: changed(pod(), changes) for name, changes in cases.items()}


def _app(field: str, value: object) -> dict[str, object]:
    return {f"spec.containers.0.{field}": value}


def _limits(**amounts: object) -> dict[str, object]:
    named = {name.replace("pages_", "hugepages-"): it for name, it in amounts.items()}
    return _app("resources", {"limits": {GPU if it == "gpu" else it: named[it] for it in named}})


def _whole(limits: object = None, requests: object = None) -> dict[str, object]:
    stated = {"limits": limits, "requests": requests}
    return {"spec.resources": {field: it for field, it in stated.items() if it is not None}}


_INIT = {"name": "init", "image": "lab/none"}
_RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}

_CLAIM = {"name": "c", "resourceClaimTemplateName": "t"}


def _claimed(claims: object, used: object = None) -> dict[str, object]:
    return {"spec.resourceClaims": claims, **_app("resources", {"claims": used})}


PODS = _pods(
    {
        "a plain pod": {},
        "a GPU of the whole pod": _whole({"cpu": "8", GPU: 1}),
        "a GPU of the whole pod requested": _whole({"cpu": "8"}, {GPU: 1}),
        "storage of the whole pod": _whole({"cpu": "8", "ephemeral-storage": "1Gi"}),
        "an unknown resource of the whole pod": _whole({"cpu": "8", "gpu": 1}),
        "amounts of the whole pod": _whole({"cpu": "8", "memory": "16Gi"}),
        "amounts of the whole pod as those of the container": _whole({"cpu": 4, "memory": "8Gi"}),
        "less CPU of the whole pod than of the container": _whole({"cpu": "2"}),
        "less memory requested of the whole pod": _whole(None, {"memory": "4Gi"}),
        "less CPU in the limit of the whole pod": _whole({"cpu": "3"}, {"cpu": "4"}),
        "claims of the whole pod": {"spec.resources": {"claims": [{"name": "c"}]}},
        "less of the whole pod than of two containers": {
            **_whole({"memory": "12Gi"}, {"memory": "12Gi"}),
            "spec.containers": [container("a"), container("b")],
        },
        "less of the whole pod than of an init container": {
            **_whole({"cpu": "6"}, {"cpu": "6"}),
            "spec.initContainers": [{**_INIT, "resources": {"requests": {"cpu": "8"}}}],
        },
        "a higher limit of an init container": {
            **_whole({"cpu": "6"}, {"cpu": "6"}),
            "spec.initContainers": [
                {**_INIT, "resources": {"requests": {"cpu": 1}, "limits": {"cpu": "8"}}}
            ],
        },
        "huge pages of the whole pod": _whole({"hugepages-2Mi": "4Mi"}),
        "huge pages of the whole pod beside CPU": _whole({"cpu": "8", "hugepages-2Mi": "4Mi"}),
        "huge pages alone": _limits(pages_2Mi="4Mi"),
        "huge pages beside a GPU": _limits(pages_2Mi="4Mi", gpu=1),
        "huge pages beside CPU": _limits(pages_2Mi="4Mi", cpu="1"),
        "a part of a huge page": _limits(pages_2Mi="3Mi", cpu="1"),
        "a part of a huge page of 1Gi": _limits(pages_1Gi="1536Mi", cpu="1"),
        "no huge page": _limits(pages_2Mi="0", cpu="1"),
        "huge pages of no size": _limits(pages_big="4Mi", cpu="1"),
        "huge pages of an unusual size": _limits(pages_3Mi="6Mi", cpu="1"),
        "huge pages requested without a limit": _app(
            "resources", {"requests": {"hugepages-2Mi": "4Mi", "cpu": 1}}
        ),
        "fewer huge pages requested": _app(
            "resources",
            {"limits": {"hugepages-2Mi": "4Mi", "cpu": 1}, "requests": {"hugepages-2Mi": "2Mi"}},
        ),
        "a negative number of GPUs": _limits(gpu=-1),
        "half a GPU": _limits(gpu="0.5"),
        "almost a GPU": _limits(gpu="0.9999"),
        "no GPU": _limits(gpu=0),
        "GPUs without an amount": _limits(gpu=None),
        "a negative amount of memory": _limits(memory="-1Gi"),
        "a negative part of a byte": _limits(memory="-0.5"),
        "CPUs that are no quantity": _limits(cpu="four"),
        "a quantity with a space": _limits(cpu=" 1"),
        "GPUs requested without a limit": _app("resources", {"requests": {GPU: 1}}),
        "fewer GPUs requested": _app("resources", {"requests": {GPU: 1}, "limits": {GPU: 2}}),
        "more CPU requested": _app("resources", {"requests": {"cpu": 2}, "limits": {"cpu": 1}}),
        "a thousandth of a byte more requested": _app(
            "resources", {"requests": {"memory": "1500m"}, "limits": {"memory": "1400m"}}
        ),
        "less CPU requested": _app("resources", {"requests": {"cpu": 1}, "limits": {"cpu": 2}}),
        "a resource without a prefix": _limits(example=1),
        "a resource of quotas": _app("resources", {"limits": {"requests.nvidia.com/gpu": 1}}),
        "a native resource": _app("resources", {"limits": {"kubernetes.io/odd": "0.5"}}),
        "a resource with two slashes": _app("resources", {"limits": {"a/b/c": 1}}),
        "a resource with a long prefix": _app("resources", {"limits": {f"{'a' * 246}/b": 1}}),
        "a resource with capitals in its prefix": _app("resources", {"limits": {"A.b/c": 1}}),
        **{
            f"memory of {written!r}": _limits(memory=written)
            for written in ("-9e99", "9e99", "1e", "1E", "-0", "-0.0", "16Ei", "1_0", "+1")
        },
        "no containers": {"spec.containers": []},
        "no list of containers": {"spec.containers": REMOVED},
        "no image": _app("image", REMOVED),
        "an empty image": _app("image", ""),
        "an image with a space": _app("image", " lab/none"),
        "a name with capitals": {"metadata.name": "Trainer"},
        "a name with an underscore": {"metadata.name": "my_pod"},
        "a name with dots": {"metadata.name": "my.pod"},
        "a name of 253 characters": {"metadata.name": "a" * 253},
        "a name of 254 characters": {"metadata.name": "a" * 254},
        "a name to generate": {"metadata": {"generateName": "p-"}},
        "a bad name to generate": {"metadata": {"generateName": "P_-"}},
        "a bad name to generate, masked by half": {"metadata": {"generateName": "é-"}},
        "a bad name to generate, masked": {"metadata": {"generateName": "p.-"}},
        "no name": {"metadata": {}},
        "a name that is a number": {"metadata.name": 5},
        "a container with capitals": _app("name", "App"),
        "a container with a dot": _app("name", "a.b"),
        "a container with a long name": _app("name", LONG),
        "a container without a name": _app("name", REMOVED),
        "two containers of one name": {"spec.containers": [container(), container()]},
        "an init container of the same name": {"spec.initContainers": [container()]},
        "a label with a space": {"metadata.labels": {"app": "my app"}},
        "a label that is too long": {"metadata.labels": {"app": LONG}},
        "a label that is empty": {"metadata.labels": {"app": ""}},
        "a label that is a number": {"metadata.labels": {"app": 1}},
        "a label with a bad key": {"metadata.labels": {"-app": "x"}},
        "an annotation with capitals": {"metadata.annotations": {"Example.com/A": "any thing"}},
        "an annotation with a bad key": {"metadata.annotations": {"a b": ""}},
        "a selector of nodes with a bad value": {"spec.nodeSelector": {"gpu": "a b"}},
        "a hostname with a dot": {"spec.hostname": "a.b"},
        "a service account with capitals": {"spec.serviceAccountName": "Me"},
        "a node with an underscore": {"spec.nodeName": "node_1"},
        "a deadline of zero": {"spec.activeDeadlineSeconds": 0},
        "a deadline of a day": {"spec.activeDeadlineSeconds": 86_400},
        "a volume of a bad name": {"spec.volumes": [{"name": "Data", "emptyDir": {}}]},
        "two volumes of one name": {"spec.volumes": [{"name": "d"}, {"name": "d"}]},
        "a mount of no volume": _app("volumeMounts", [{"name": "d", "mountPath": "/d"}]),
        "two mounts at one path": {
            "spec.volumes": [{"name": "d"}],
            **_app("volumeMounts", [{"name": "d", "mountPath": "/d"}] * 2),
        },
        "restart policy OnFailure": {"spec.restartPolicy": "OnFailure"},
        "restart policy Sometimes": {"spec.restartPolicy": "Sometimes"},
        "restart policy of a container": _app("restartPolicy", "Never"),
        "restart policy of a container Sometimes": _app("restartPolicy", "Sometimes"),
        "a sidecar": {"spec.initContainers": [{**_INIT, "restartPolicy": "Always"}]},
        "an init container on failure": {
            "spec.initContainers": [{**_INIT, "restartPolicy": "OnFailure"}]
        },
        "an init container sometimes": {
            "spec.initContainers": [{**_INIT, "restartPolicy": "Sometimes"}]
        },
        "a rule for restarts": {
            **_app("restartPolicy", "Never"),
            **_app("restartPolicyRules", [_RULE]),
        },
        "a rule for restarts without a policy": _app("restartPolicyRules", [_RULE]),
        "a rule for restarts without codes": {
            **_app("restartPolicy", "Never"),
            **_app("restartPolicyRules", [{"action": "Restart"}]),
        },
        "a rule for restarts with an unknown action": {
            **_app("restartPolicy", "Never"),
            **_app("restartPolicyRules", [{**_RULE, "action": "Reboot"}]),
        },
        "too many rules for restarts": {
            **_app("restartPolicy", "Never"),
            **_app("restartPolicyRules", [_RULE] * 21),
        },
        "an ephemeral container": {"spec.ephemeralContainers": [_INIT]},
        "an overhead without a RuntimeClass": {"spec.overhead": {"cpu": "1"}},
        "an empty overhead": {"spec.overhead": {}},
        "no overhead": {"spec.overhead": None},
        "a negative overhead": {"spec.overhead": {"cpu": "-1"}},
        "an overhead that is no quantity": {"spec.overhead": {"cpu": "x"}},
        "an overhead of an unknown resource": {"spec.overhead": {"example": "1"}},
        "a claim": _claimed([_CLAIM], [{"name": "c"}]),
        "a claim by its own name": _claimed(
            [{"name": "c", "resourceClaimName": "x.y"}], [{"name": "c"}]
        ),
        "a claim that nobody uses": _claimed([_CLAIM]),
        "a claim that the pod lacks": _claimed([_CLAIM], [{"name": "d"}]),
        "a claim of a pod without claims": _claimed(None, [{"name": "c"}]),
        "a claim of an init container that the pod lacks": {
            "spec.initContainers": [{**_INIT, "resources": {"claims": [{"name": "c"}]}}]
        },
        "a claim without a name": _claimed([{"resourceClaimTemplateName": "t"}]),
        "a claim with capitals": _claimed([{**_CLAIM, "name": "C"}]),
        "two claims of one name": _claimed([_CLAIM, _CLAIM]),
        "a claim of nothing": _claimed([{"name": "c"}]),
        "a claim of two things": _claimed([{**_CLAIM, "resourceClaimName": "x"}]),
        "a claim of a template with capitals": _claimed(
            [{"name": "c", "resourceClaimTemplateName": "T"}]
        ),
        "a claim of a template without a name": _claimed(
            [{"name": "c", "resourceClaimTemplateName": ""}]
        ),
        "a claim used twice": _claimed([_CLAIM], [{"name": "c"}, {"name": "c"}]),
        "a claim used without a name": _claimed([_CLAIM], [{"request": "r"}]),
        "two requests of a claim": _claimed(
            [_CLAIM], [{"name": "c", "request": "r"}, {"name": "c", "request": "s"}]
        ),
        "a request used twice": _claimed([_CLAIM], [{"name": "c", "request": "r"}] * 2),
        "a request and its claim": _claimed(
            [_CLAIM], [{"name": "c", "request": "r"}, {"name": "c"}]
        ),
        "a claim and its request": _claimed(
            [_CLAIM], [{"name": "c"}, {"name": "c", "request": "r"}]
        ),
        "a request with capitals": _claimed([_CLAIM], [{"name": "c", "request": "R"}]),
    }
)


def _of(kind: str, cases: Mapping[str, Mapping[str, object]]) -> dict[str, Object]:
    return {
        f"{kind}: {name}": changed(controller(kind), changes) for name, changes in cases.items()
    }


def _every(kind: str) -> dict[str, Object]:
    """Return the cases that every controller has."""
    at = template_path(kind)
    app = f"{at}.spec.containers.0"
    return _of(
        kind,
        {
            "as it is": {},
            "restart policy Always": {f"{at}.spec.restartPolicy": "Always"},
            "restart policy OnFailure": {f"{at}.spec.restartPolicy": "OnFailure"},
            "no restart policy": {f"{at}.spec.restartPolicy": REMOVED},
            "a deadline": {f"{at}.spec.activeDeadlineSeconds": 60},
            "an ephemeral container": {f"{at}.spec.ephemeralContainers": [_INIT]},
            "an image with a space": {f"{app}.image": " lab/none"},
            "no containers": {f"{at}.spec.containers": []},
            "an overhead": {f"{at}.spec.overhead": {"cpu": "1"}},
            "a claim that its pods lack": {f"{app}.resources": {"claims": [{"name": "c"}]}},
            "half a GPU": {f"{app}.resources": {"limits": {GPU: "500m"}}},
            "no spec in the template": {f"{at}.spec": REMOVED},
            "a label that is too long": {f"{at}.metadata.labels.more": LONG},
            "a name with an underscore": {"metadata.name": "a_b"},
            "a name with a dot": {"metadata.name": "a.b"},
            "a name of 64 characters": {"metadata.name": LONG},
            "a name of 53 characters": {"metadata.name": "a" * 53},
            "limits of the whole pod below its containers": {
                f"{at}.spec.resources": {"limits": {"cpu": "2"}}
            },
            "limits of the whole pod that its pods exceed": {
                f"{at}.spec.resources": {"limits": {"cpu": "2"}},
                f"{app}.resources": {"requests": {"cpu": "4"}},
            },
        },
    )


def _selecting(kind: str) -> dict[str, Object]:
    """Return the cases of controllers with a selector."""
    return _of(
        kind,
        {
            "no selector": {"spec.selector": REMOVED},
            "an empty selector": {"spec.selector": {}},
            "a selector of other pods": {"spec.selector.matchLabels": {"app": "y"}},
            "a selector by expression": {
                "spec.selector": {
                    "matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]
                }
            },
            "a selector by absence": {
                "spec.selector": {"matchExpressions": [{"key": "z", "operator": "DoesNotExist"}]}
            },
            "a selector without values": {
                "spec.selector": {"matchExpressions": [{"key": "app", "operator": "In"}]}
            },
            "a selector with an unknown operator": {
                "spec.selector": {"matchExpressions": [{"key": "app", "operator": "Like"}]}
            },
            "a negative count": {"spec.replicas": -1},
            "a count beyond 32 bits": {"spec.replicas": 1 << 31},
            "a runtime class with capitals": {"spec.template.spec.runtimeClassName": "NVIDIA"},
            "a priority class with capitals": {"spec.template.spec.priorityClassName": "High"},
            "an API that is gone": {"apiVersion": "extensions/v1beta1"},
        },
    )


OTHERS = {
    **_of(
        "ReplicationController",
        {
            "no selector": {"spec.selector": REMOVED},
            "a selector of other pods": {"spec.selector": {"app": "y"}},
            "neither selector nor labels": {
                "spec.selector": REMOVED,
                "spec.template.metadata": {},
            },
            "a name beside a bad one to generate": {"metadata.generateName": "a_b"},
            "a bad name to generate": {"metadata": {"generateName": "a_b-"}},
        },
    ),
    **_of(
        "StatefulSet",
        {
            "a mount of a claim": {
                "spec.volumeClaimTemplates": [
                    {
                        "metadata": {"name": "data"},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Gi"}},
                        },
                    }
                ],
                "spec.template.spec.containers.0.volumeMounts": [
                    {"name": "data", "mountPath": "/data"}
                ],
            },
        },
    ),
    **_of(
        "Job",
        {
            "a selector of its own": {"spec.selector": {"matchLabels": LABELS}},
            "an empty selector": {"spec.selector": {}},
            "a selector by its name": {"spec.selector": {"matchLabels": {"job-name": "c"}}},
            "a selector that is to be kept": {
                "spec.manualSelector": True,
                "spec.selector": {"matchLabels": LABELS},
            },
            "no selector that could be kept": {"spec.manualSelector": True},
            "a selector of other pods that is to be kept": {
                "spec.manualSelector": True,
                "spec.selector": {"matchLabels": {"app": "y"}},
            },
            "the name of another Job": {"spec.template.metadata.labels": {"job-name": "d"}},
            "the uid of another Job": {"spec.template.metadata.labels": {"controller-uid": "1"}},
            "indexes": {"spec.completionMode": "Indexed", "spec.completions": 4},
            "indexes without a count": {"spec.completionMode": "Indexed"},
            "indexes of a long name": {
                "metadata.name": "a" * 62,
                "spec.completionMode": "Indexed",
                "spec.completions": 4,
            },
            "an unknown mode": {"spec.completionMode": "Random"},
            "a negative parallelism": {"spec.parallelism": -1},
            "a deadline beyond 32 bits": {"spec.activeDeadlineSeconds": 1 << 40},
            "a negative deadline": {"spec.activeDeadlineSeconds": -1},
        },
    ),
    **_of(
        "CronJob",
        {
            "no schedule": {"spec.schedule": REMOVED},
            "a selector": {"spec.jobTemplate.spec.selector": {"matchLabels": LABELS}},
            "a selector that is to be kept": {"spec.jobTemplate.spec.manualSelector": True},
            "a name of 52 characters": {"metadata.name": "a" * 52},
            "a long name to generate": {"metadata": {"generateName": f"{'a' * 49}-"}},
        },
    ),
}

CASES: dict[str, Object] = {
    **PODS,
    **{name: case for kind in CONTROLLERS for name, case in _every(kind).items()},
    **{
        name: case
        for kind in ("ReplicaSet", "Deployment", "StatefulSet", "DaemonSet")
        for name, case in _selecting(kind).items()
    },
    **OTHERS,
}
"""Every case of the table, by name."""
