"""What our reader makes of CDI directories is what CDI's own library makes of them."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from nodetopo.model.cdi import CdiRegistry, CdiSpec, device_name
from nodetopo.probes.host.cdi import cdi_specs
from nodetopo.probes.host.paths import HostPaths
from nodetopo.probes.sysfs.files import Files
from tests.lab.cdi import Answer, Library, library

pytestmark = pytest.mark.lab

Object = dict[str, Any]

_DIRECTORIES = ("etc", "run", "opt")
_FILES = ("a.json", "b.yaml", "c.yaml", "d.txt", "sub/e.json")
_VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "v0.5.0", "0.6.0", "0.7.0", "1.0.0", "1.1.0")
_KINDS = ("nvidia.com/gpu", "nvidia.com/gpu", "a.com/x.y")
_DEVICES = ("0", "1", "all", "GPU-0", "MIG-0")
_HERE = ("/dev/null", "/dev/zero")
"""Device nodes that every machine has."""

_LOAD = "failed to load CDI Spec"
_CONFLICT = "conflicting device"

_BAD: tuple[tuple[str, Any], ...] = (
    ("cdiVersion", "0.9.0"),
    ("cdiVersion", 0.5),
    ("cdiVersion", ""),
    ("kind", "nvidia.com"),
    ("kind", "nvidia.com/gpu/x"),
    ("kind", "1a.com/gpu"),
    ("kind", "nvidia.com/gpu."),
    ("kind", ["nvidia.com/gpu"]),
    ("unknown", 1),
    ("annotations", {"a b": "c"}),
    ("annotations", {"a/B.c": "c"}),
    ("annotations", {"a": 1}),
    ("annotations", []),
    ("devices", {}),
    ("devices", None),
    ("devices", []),
    ("Devices", [{"name": "0", "containerEdits": {"env": ["A=1"]}}]),
    ("devices", [{"name": "-a", "containerEdits": {"env": ["A=1"]}}]),
    ("devices", [{"name": "a:", "containerEdits": {"env": ["A=1"]}}]),
    ("devices", [{"name": 7, "containerEdits": {"env": ["A=1"]}}]),
    ("devices", [{"name": True, "containerEdits": {"env": ["A=1"]}}]),
    ("devices", [{"name": "all"}]),
    ("devices", [{"name": "all", "containerEdits": {"env": []}}]),
    ("devices", [{"name": "all", "containerEdits": {"additionalGids": [0]}}]),
    ("devices", [{"name": "all", "more": 1, "containerEdits": {"env": ["A=1"]}}]),
    ("devices", [{"name": "all", "containerEdits": {"env": ["A=1"]}}] * 2),
    ("containerEdits", {"env": ["A"]}),
    ("containerEdits", {"env": ["=A"]}),
    ("containerEdits", {"env": [1]}),
    ("containerEdits", {"env": "A=1"}),
    ("containerEdits", {"deviceNodes": [{"path": ""}]}),
    ("containerEdits", {"deviceNodes": [{"path": "/dev/null", "type": "x"}]}),
    ("containerEdits", {"deviceNodes": [{"path": "/dev/null", "permissions": "rx"}]}),
    ("containerEdits", {"deviceNodes": [{"path": "/dev/null", "major": "1"}]}),
    ("containerEdits", {"deviceNodes": [{"path": "/dev/null", "uid": -1}]}),
    ("containerEdits", {"deviceNodes": [{"path": "/dev/null", "fileMode": 438}]}),
    ("containerEdits", {"deviceNodes": [{"path": "/dev/null", "major": 1.0}]}),
    ("containerEdits", {"hooks": [{"hookName": "start", "path": "/x"}]}),
    ("containerEdits", {"hooks": [{"hookName": "createContainer", "path": ""}]}),
    ("containerEdits", {"hooks": [{"hookName": "createContainer", "path": "/x", "env": ["A"]}]}),
    ("containerEdits", {"hooks": [{"hookName": "poststop", "path": "/x", "timeout": 1.5}]}),
    ("containerEdits", {"mounts": [{"hostPath": "/x"}]}),
    ("containerEdits", {"mounts": [{"hostPath": "/x", "containerPath": "/x", "type": "bind"}]}),
    ("containerEdits", {"mounts": [{"hostPath": "/x", "containerPath": "/x", "options": 1}]}),
    ("containerEdits", {"intelRdt": {}}),
    ("containerEdits", {"intelRdt": {"closID": "a/b"}}),
    ("containerEdits", {"intelRdt": {"closID": "a", "enableMonitoring": True}}),
    ("containerEdits", {"netDevices": [{"hostInterfaceName": "a", "name": "b"}] * 2}),
    ("containerEdits", {"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}),
    ("containerEdits", {"additionalGids": [1]}),
    ("containerEdits", None),
)
"""Fields in place of good ones: most are errors, and some only in older versions or not at all."""

_TEXTS = ("", "{", "null", "[]", "3", "a: 1\na: 2\n", "---\n", "kind: [")


def _node(at: str) -> st.SearchStrategy[Object]:
    """Return device nodes that are here, or that are missing or something else below *at*."""
    others = ("none", "folder", "link", "fifo")
    return st.fixed_dictionaries(
        {"hostPath": st.sampled_from((*_HERE, *(f"{at}/{name}" for name in others)))},
        optional={
            "type": st.sampled_from(("b", "c", "u", "p")),
            "major": st.sampled_from((0, 1, 511)),
            "minor": st.sampled_from((0, 3, 5)),
            "permissions": st.sampled_from(("rw", "rwm")),
        },
    )


def _edits(at: str, whose: str) -> st.SearchStrategy[Object]:
    def made(nodes: Sequence[Object]) -> Object:
        listed = [{**node, "path": f"/dev/{whose}{n}"} for n, node in enumerate(nodes)]
        return {"env": ["A=1"], **({"deviceNodes": listed} if listed else {})}

    return st.lists(_node(at), max_size=2).map(made)


def _documents(at: str) -> st.SearchStrategy[Object]:
    devices = st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from(_DEVICES), "containerEdits": _edits(at, "own")}
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda device: str(device["name"]),
    )
    whole = st.fixed_dictionaries(
        {
            "cdiVersion": st.sampled_from((*_VERSIONS, *("0.6.0",) * 8)),
            "kind": st.sampled_from(_KINDS),
            "devices": devices,
        },
        optional={"containerEdits": _edits(at, "all")},
    )
    change = st.one_of(st.none(), st.none(), st.none(), st.sampled_from(_BAD))

    def changed(pair: tuple[Object, tuple[str, Any] | None]) -> Object:
        document, bad = pair
        if bad is None:
            return document
        name, value = bad
        rest = {key: old for key, old in document.items() if key.lower() != name.lower()}
        return {**rest, name: value}

    return st.tuples(whole, change).map(changed)


def _trees(at: str) -> st.SearchStrategy[dict[str, str]]:
    """Return files of specifications, by path, below directories of ascending precedence."""
    text = st.one_of(*(_documents(at).map(json.dumps),) * 6, st.sampled_from(_TEXTS))
    paths = st.sampled_from([f"{place}/{name}" for place in _DIRECTORIES for name in _FILES])
    return st.dictionaries(paths, text, min_size=1, max_size=4)


@pytest.fixture(scope="module")
def theirs() -> Iterator[Library]:
    """Lend CDI's library."""
    with library() as lent:
        yield lent


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Yield a directory with paths that are no character devices.

    It is not below /dev, where tests can have their files: paths there are those of the host's
    devices.
    """
    with tempfile.TemporaryDirectory(prefix="nt-", dir="/var/tmp") as folder:
        made = Path(folder)
        (made / "folder").mkdir()
        (made / "link").symlink_to("/dev/null")
        os.mkfifo(made / "fifo")
        yield made


@settings(
    max_examples=600,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_names_resolve_and_edits_apply_as_by_the_library(
    data: st.DataObject, theirs: Library, home: Path
) -> None:
    tree = data.draw(_trees(str(home)))
    root = home / "tree"
    shutil.rmtree(root, ignore_errors=True)
    for path, text in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    directories = [root / name for name in _DIRECTORIES]
    expected = theirs.resolve(directories)

    files = Files("host", Path("/"))
    specs = cdi_specs(files, HostPaths(files), [str(path) for path in directories]) or ()
    registry = CdiRegistry(specs, [str(path) for path in directories])

    assert _resolved(specs, registry) == {
        name: device.path for name, device in expected.devices.items()
    }
    assert {spec.path for spec in specs if spec.error} == _with(expected, _LOAD)
    assert _conflicting(specs, registry) == _with(expected, _CONFLICT)
    for name, device in expected.devices.items():
        kind, _, short = name.partition("=")
        (spec,) = (spec for spec in registry.specs(kind) if spec.path == device.path)
        faults = [fault.reason for fault in spec.faults if fault.concerns(short)]
        event("edits do not apply" if device.problem else "edits apply")
        assert any(fault.startswith("names ") for fault in faults) == bool(device.problem)
        if not device.problem:
            here = _numbers_here(json.loads(tree[device.path.removeprefix(f"{root}/")]), short)
            others = any(here[path] not in (None, found) for path, found in device.numbers.items())
            assert any(fault.startswith("gives ") for fault in faults) == others


def _resolved(specs: Sequence[CdiSpec], registry: CdiRegistry) -> dict[str, str]:
    return {
        device_name(spec.kind or "", device): spec.path
        for spec in specs
        for device in registry.devices(spec)
    }


def _with(answer: Answer, what: str) -> set[str]:
    """Return the files with an error that begins with *what*."""
    return {path for path, errors in answer.errors.items() if any(what in it for it in errors)}


def _conflicting(specs: Sequence[CdiSpec], registry: CdiRegistry) -> set[str]:
    both = (
        registry.conflict(spec.kind or "", device)
        for spec in specs
        if spec.error is None
        for device in spec.devices
    )
    return {path for pair in both if pair for path in pair}


def _numbers_here(document: Mapping[str, Any], device: str) -> dict[str, str | None]:
    """Return type and numbers on this machine of each device node, by path in a container.

    None for what is no device node here: one with numbers of its own needs none.
    """
    every = [document.get("containerEdits") or {}]
    listed = next(value for key, value in document.items() if key.lower() == "devices")
    every += [one["containerEdits"] for one in listed if str(one["name"]) == device]
    nodes = [node for edits in every for node in edits.get("deviceNodes", ())]
    found: dict[str, str | None] = {}
    for node in nodes:
        path = node.get("hostPath") or node["path"]
        is_here = path in _HERE and node.get("type") != "p"
        status = Path(path).stat() if is_here else None
        letter = node.get("type", "c")
        found[node["path"]] = (
            None
            if status is None
            else f"{letter} {os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
        )
    return found
