"""As much of ``kubectl kustomize`` as ``deploy/daemonset`` uses, to see what would be applied.

``python -m tests.deploy.kustomize FOLDER`` prints it; tests/lab/test_release.py holds it against
the real one.
"""

import sys
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

_NAMED_BY = {
    "containers": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""What tells the items of a list apart (``x-kubernetes-patch-merge-key`` of apps/v1)."""

_KNOWN = {"apiVersion", "kind", "labels", "resources", "components", "patches", "images"}


def render(folder: Path, *components: Path) -> list[Object]:
    """Return the objects of the kustomization in *folder*, changed by *components* in order.

    Raises:
        AssertionError: one uses more of kustomize than is rendered here, or a patch of it has no
            target or does not apply.
    """
    found = _render(folder, [])
    for component in components:
        found = _render(component, found)
    return found


def _render(folder: Path, below: list[Object]) -> list[Object]:
    (plan,) = documents(folder / "kustomization.yaml")
    assert set(plan) <= _KNOWN, f"{folder} uses {sorted(set(plan) - _KNOWN)}"
    found = [*below, *(one for name in plan.get("resources", ()) for one in _load(folder / name))]
    for name in plan.get("components", ()):
        found = _render(folder / name, found)
    for patch in plan.get("patches", ()):
        _patch(found, patch)
    for entry in plan.get("labels", ()):
        for one in found:
            labels = one["metadata"].setdefault("labels", {})
            labels |= entry["pairs"]
    set_images(found, plan.get("images", ()))
    return found


def set_images(objects: Iterable[Object], images: Iterable[Mapping[str, str]]) -> None:
    """Give the containers of *objects* the names and tags that *images* of a plan say.

    An image is found by the name that it has without its tag
    (kubernetes-sigs/kustomize, api/internal/image).
    """
    by_name = {one["name"]: one for one in images}
    for found in objects:
        template = found.get("spec", {}).get("template", {})
        for container in template.get("spec", {}).get("containers", ()):
            place, slash, last = container["image"].rpartition("/")
            name, _, tag = last.partition(":")
            name = place + slash + name
            if change := by_name.get(name):
                assert set(change) <= {"name", "newName", "newTag"}, change
                tag = change.get("newTag", tag)
                container["image"] = change.get("newName", name) + (f":{tag}" if tag else "")


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def _load(resource: Path) -> list[Object]:
    return _render(resource, []) if resource.is_dir() else documents(resource)


def _patch(objects: list[Object], patch: Object) -> None:
    change = yaml.safe_load(patch["patch"])
    target = patch.get("target") or {"kind": change["kind"], "name": change["metadata"]["name"]}
    (found,) = (
        one
        for one in objects
        if (one["kind"], one["metadata"]["name"]) == (target["kind"], target["name"])
    )
    if isinstance(change, dict):
        _merge(found, change)
        return
    for step in change:
        _apply(found, step)


def _merge(into: Object, change: Object) -> None:
    """Merge as a strategic merge patch does: maps by key, lists of things by what names them."""
    for key, value in change.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value)
        elif key in _NAMED_BY:
            into[key] = _merged(old or [], value, _NAMED_BY[key])
        else:
            into[key] = deepcopy(value)


def _merged(old: list[Object], added: list[Object], name: str) -> list[Object]:
    found = {item[name]: item for item in old}
    for item in added:
        _merge(found.setdefault(item[name], {}), item)
    return list(found.values())


def _apply(root: Object, step: Object) -> None:
    """Apply one operation of a JSON patch (RFC 6902)."""
    *parents, last = step["path"].lstrip("/").split("/")
    place: Any = root
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if isinstance(place, list):
        assert (step["op"], last) == ("add", "-"), step
        place.append(deepcopy(step["value"]))
        return
    assert step["op"] in {"add", "replace"}, step
    assert step["op"] == "add" or last in place, f"nothing to replace: {step}"
    place[last] = deepcopy(step["value"])


if __name__ == "__main__":
    print(yaml.safe_dump_all(render(Path(sys.argv[1])), sort_keys=False))
