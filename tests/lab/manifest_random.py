"""Manifests that break some of the API server's rules, or none, drawn from a seed."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

from tests.probes.pods.manifest_cases import (
    CONTROLLERS,
    GPU,
    LABELS,
    LONG,
    REMOVED,
    Object,
    changed,
    controller,
    pod,
    template_path,
)

_NAMES: tuple[object, ...] = (
    *("a", "a-b", "a.b", "0a", "a-", "-a", "A", "a_b", "a b", "", "é", "a..b", "a\n", 7),
    *(LONG, LONG[1:], "a" * 52, "a" * 253, "a" * 254, ".".join(["a" * 63] * 3)),
)
_VALUES: tuple[object, ...] = ("x", "", "X_1.y", "-x", "x y", LONG, LONG[1:], 1, True, None)
_KEYS = ("app", "a/b", "A.b/c", "a//b", "/b", "a/", "x_y", "-x", LONG, "a.b/" + LONG, "app.K8s_1")
_POLICIES: tuple[object, ...] = ("Always", "OnFailure", "Never", "", "always", "Sometimes", REMOVED)
_AMOUNTS: tuple[object, ...] = (
    *("0", "1", "2", "4", "1500m", "0.5", "2Mi", "4Mi", "3Mi", "1Gi", "8Gi", "1.5Gi", "1100m"),
    *("0.9999", "1u", "-1", "-0.1", "1e3", "x", "", " 2", "1_0", "+1", "1E", "2Ki", 1, 2, 0.5, 0),
    None,
)
_RESOURCES = (
    *("cpu", "cpu", "memory", "memory", GPU, GPU, "hugepages-2Mi", "hugepages-1Gi"),
    *("ephemeral-storage", "hugepages-", "hugepages-3k", "gpu", "pods", "requests.cpu"),
    *("a.b/c", "A/b", "a/b/c", "requests.a/b", "kubernetes.io/x", "x.kubernetes.io/y"),
)
_USUAL = ("cpu", "memory", GPU, "hugepages-2Mi", "ephemeral-storage")
_SENSIBLE: Mapping[str, tuple[object, ...]] = {
    "cpu": ("1", "2", "4", "500m", 8),
    "memory": ("1Gi", "2Gi", "4Gi", "512Mi"),
    GPU: (1, 2, 4, "1"),
    "hugepages-2Mi": ("2Mi", "4Mi", "64Mi"),
    "ephemeral-storage": ("1Gi",),
}


def manifests(count: int, seed: int) -> Iterator[Object]:
    """Yield *count* manifests, the same for each *seed*; about half of them are accepted."""
    random = Random(seed)
    for _ in range(count):
        yield _manifest(random)


def _manifest(random: Random) -> Object:
    kind = random.choice(("Pod", "Pod", "Pod", "Pod", *CONTROLLERS))
    base = pod() if kind == "Pod" else controller(kind)
    at = "" if kind == "Pod" else f"{template_path(kind)}."
    made = changed(base, _sensible(random, f"{at}spec"))
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        made = changed(made, _change(random, kind, at, made))
    return made


def _sensible(random: Random, spec: str) -> dict[str, object]:
    """Return containers, and sometimes pod-level resources, that are likely to be accepted."""
    changes: dict[str, object] = {
        f"{spec}.containers": [
            _container(random, f"app-{n}") for n in range(random.choice((1, 1, 2)))
        ]
    }
    if random.random() < 0.3:
        init = [_container(random, f"init-{n}") for n in range(random.choice((1, 1, 2)))]
        for one in init:
            if random.random() < 0.5:
                one["restartPolicy"] = random.choice(("Always", "Always", "Never", "OnFailure"))
        changes[f"{spec}.initContainers"] = init
    if random.random() < 0.3:
        changes[f"{spec}.resources"] = _resources(random, ("cpu", "memory", "hugepages-2Mi"))
    return changes


def _container(random: Random, name: str) -> Object:
    return {"name": name, "image": "lab/none", "resources": _resources(random, _USUAL)}


def _resources(random: Random, names: tuple[str, ...]) -> Object:
    made: dict[str, dict[str, object]] = {"requests": {}, "limits": {}}
    for name in random.sample(names, random.randint(0, 3)):
        limit = random.choice(_SENSIBLE[name])
        made["limits"][name] = limit
        if random.random() < 0.3:
            made["requests"][name] = limit
        elif random.random() < 0.15:
            made[random.choice(("requests", "limits"))][name] = random.choice(_SENSIBLE[name])
        if random.random() < 0.1:
            made["limits"].pop(name)
    return {part: amounts for part, amounts in made.items() if amounts or random.random() < 0.2}


def _change(random: Random, kind: str, at: str, made: Object) -> dict[str, object]:
    """Return one change, of a place drawn first so that every rule has its turn."""
    spec = f"{at}spec"
    choices = [_amount, _amount, _whole, _name, _label, _of_container, _of_spec, _claim]
    if kind != "Pod":
        choices += [_of_controller, _of_controller]
    return random.choice(choices)(random, kind, spec, made)


def _one(random: Random, *changes: Mapping[str, object]) -> dict[str, object]:
    """Return one of *changes*."""
    return dict(random.choice(changes))


def _some_container(random: Random, spec: str, made: Object) -> str | None:
    here: Any = made
    for step in spec.split("."):
        here = here[step]
    lists = [
        f"{field}.{n}"
        for field in ("containers", "initContainers")
        for n in range(len(here.get(field) or ()))
    ]
    return f"{spec}.{random.choice(lists)}" if lists else None


def _amount(random: Random, _: str, spec: str, made: Object) -> dict[str, object]:
    one = _some_container(random, spec, made)
    if one is None:
        return {}
    part, name = random.choice(("limits", "limits", "requests")), random.choice(_RESOURCES)
    changes: dict[str, object] = {_path(f"{one}.resources.{part}", name): random.choice(_AMOUNTS)}
    if random.random() < 0.3:
        other = "requests" if part == "limits" else "limits"
        changes[_path(f"{one}.resources.{other}", name)] = random.choice(_AMOUNTS)
    return changes


def _path(at: str, key: str) -> str:
    return f"{at}[{key}]"


def _whole(random: Random, _: str, spec: str, __: Object) -> dict[str, object]:
    name = random.choice(("cpu", "memory", "hugepages-2Mi", random.choice(_RESOURCES)))
    part = random.choice(("limits", "requests"))
    if random.random() < 0.1:
        return {f"{spec}.resources.claims": random.choice(([], [{"name": "c"}]))}
    amount = random.choice((*_SENSIBLE.get(name, ()), *_SENSIBLE.get(name, ()), *_AMOUNTS))
    return {_path(f"{spec}.resources.{part}", name): amount}


def _name(random: Random, _: str, spec: str, made: Object) -> dict[str, object]:
    name = random.choice(_NAMES)
    one = _some_container(random, spec, made)
    places = ["metadata.name", "metadata.generateName", *([f"{one}.name"] if one else ())]
    place = random.choice(places)
    if place.endswith("generateName"):
        written = f"{name}-" if random.random() < 0.5 else name
        return {place: written, "metadata.name": random.choice((REMOVED, "given"))}
    if place.startswith(spec) and random.random() < 0.3:
        return {place: random.choice(("app-0", "app-1", "init-0"))}
    return {place: name}


def _label(random: Random, kind: str, spec: str, __: Object) -> dict[str, object]:
    places = ["metadata.labels", "metadata.annotations", f"{spec}.nodeSelector"]
    if kind != "Pod":
        of_template = spec.removesuffix("spec") + "metadata"
        places += [f"{of_template}.labels", f"{of_template}.annotations"]
    value = random.choice(_VALUES)
    key = random.choice(_KEYS)
    return {random.choice(places): {**LABELS, key: value}}


def _of_container(random: Random, _: str, spec: str, made: Object) -> dict[str, object]:
    one = _some_container(random, spec, made)
    if one is None:
        return {}
    rule = {
        "action": random.choice(("Restart", "Restart", "RestartAllContainers", "Reboot", "")),
        "exitCodes": random.choice(
            (
                {"operator": "In", "values": [1]},
                {"operator": "NotIn", "values": [0] * random.choice((1, 255, 256))},
                {"operator": "Like"},
                None,
            )
        ),
    }
    mounts = [
        {"name": random.choice(("d", "e", "")), "mountPath": random.choice(("/d", "/e", ""))}
        for _ in range(random.choice((1, 2)))
    ]
    return _one(
        random,
        {f"{one}.image": random.choice(("", REMOVED, " x", "x ", "x", "x:y", 3))},
        {f"{one}.restartPolicy": random.choice(_POLICIES)},
        {
            f"{one}.restartPolicy": random.choice(_POLICIES),
            f"{one}.restartPolicyRules": [rule] * random.choice((1, 1, 20, 21)),
        },
        {
            f"{one}.volumeMounts": mounts,
            f"{spec}.volumes": [
                {"name": random.choice(("d", "e"))} for _ in range(random.choice((1, 2)))
            ],
        },
    )


def _claim(random: Random, _: str, spec: str, made: Object) -> dict[str, object]:
    """Return claims of the pod and of one container, of which a few have a fault."""
    names = random.sample(("a", "b", "c"), random.choice((0, 1, 1, 2)))
    claims: list[Object] = [{"name": name, "resourceClaimTemplateName": "t"} for name in names]
    if claims and random.random() < 0.3:
        claims[0][random.choice(("name", "resourceClaimName", "resourceClaimTemplateName"))] = (
            random.choice((None, *_NAMES))
        )
    if claims and random.random() < 0.1:
        claims.append(dict(claims[0]))
    changes: dict[str, object] = {f"{spec}.resourceClaims": claims or random.choice(([], None))}
    one = _some_container(random, spec, made)
    if one is not None and random.random() < 0.8:
        used = random.choices((*names, *names, "a"), k=random.choice((1, 1, 2)))
        changes[f"{one}.resources.claims"] = [
            {"name": name, "request": random.choice((None, None, "r", "s", "", "R"))}
            for name in used
        ]
    return changes


def _of_spec(random: Random, _: str, spec: str, __: Object) -> dict[str, object]:
    name = random.choice(_NAMES)
    return _one(
        random,
        {f"{spec}.restartPolicy": random.choice(_POLICIES)},
        {f"{spec}.activeDeadlineSeconds": random.choice((-1, 0, 1, (1 << 31) - 1, 1 << 31))},
        {f"{spec}.hostname": name},
        {f"{spec}.subdomain": name},
        {f"{spec}.serviceAccountName": name},
        {f"{spec}.nodeName": name},
        {f"{spec}.volumes": [{"name": name, "emptyDir": {}}]},
        {f"{spec}.containers": random.choice(([], REMOVED, None))},
        {f"{spec}.ephemeralContainers": [{"name": "debug", "image": "x"}]},
        {f"{spec}.overhead": random.choice(({}, None, {"cpu": random.choice(_AMOUNTS)}))},
    )


def _of_controller(random: Random, kind: str, spec: str, __: Object) -> dict[str, object]:
    template = spec.removesuffix(".spec")
    if kind == "PodTemplate":
        return {f"{template}.metadata": random.choice(({}, None, {"labels": {"a": "b"}}))}
    if kind in ("Job", "CronJob"):
        of = template.removesuffix(".template")
        return _one(
            random,
            {f"{of}.selector": random.choice(({}, {"matchLabels": LABELS}, _selector(random)))},
            {
                f"{of}.selector": random.choice(({}, _selector(random))),
                f"{of}.manualSelector": random.choice((True, True, False, None)),
            },
            {f"{of}.parallelism": random.choice((0, 1, -1, 1 << 31, None))},
            {f"{of}.completions": random.choice((0, 1, 1000, -1))},
            {
                f"{of}.completionMode": random.choice(("Indexed", "NonIndexed", "indexed")),
                f"{of}.completions": random.choice((0, 1, 11, None)),
                "metadata.name": random.choice(("c", "a" * 61, "a" * 62, "a.b")),
            },
            {f"{of}.activeDeadlineSeconds": random.choice((-1, 0, 60, 1 << 33))},
            {
                f"{template}.metadata.labels": {
                    random.choice(
                        ("job-name", "batch.kubernetes.io/job-name", "controller-uid")
                    ): random.choice(("c", "d", ""))
                }
            },
        )
    if kind == "ReplicationController":
        return _one(
            random,
            {"spec.selector": random.choice(({}, LABELS, {"app": "y"}, REMOVED))},
            {f"{template}.metadata": random.choice(({}, {"labels": {"app": "y"}}))},
            {"spec.replicas": random.choice((0, -1, 1 << 31, None))},
        )
    return _one(
        random,
        {"spec.selector": random.choice((REMOVED, {}, _selector(random), _selector(random)))},
        {f"{template}.metadata.labels": random.choice(({}, {"app": "y"}, {**LABELS, "z": "1"}))},
        {"spec.replicas": random.choice((0, 1, -1, 1 << 31, None))},
        {"spec.minReadySeconds": random.choice((0, 5, -1))},
    )


def _selector(random: Random) -> Object:
    expression = {
        "key": random.choice(("app", "app", "z", "a b")),
        "operator": random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Like")),
        "values": random.choice((["x"], ["x", "y"], ["y"], [], [""], ["a b"])),
    }
    if expression["operator"] in ("Exists", "DoesNotExist") and random.random() < 0.7:
        del expression["values"]
    made: Object = {"matchExpressions": [expression]} if random.random() < 0.8 else {}
    if random.random() < 0.4:
        made["matchLabels"] = random.choice((LABELS, {"app": "y"}, {"app": "a b"}))
    return made
