"""CDI specifications as CDI's library reads them; tests/lab/test_cdi_resolver.py compares both."""

import re
from typing import Any

import pytest

from nodetopo.formats.cdi import read

GOOD: dict[str, Any] = {
    "cdiVersion": "0.6.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/x"}]}}],
    "containerEdits": {
        "env": ["A=1"],
        "hooks": [{"hookName": "createContainer", "path": "/x", "args": ["x"]}],
    },
}
NODE = {"path": "/dev/x"}
RDT = {"closID": "a"}


def _with(name: str, value: Any) -> dict[str, Any]:
    return {**GOOD, name: value}


def _edits(**edits: Any) -> dict[str, Any]:
    return _with("containerEdits", edits)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no content"),
        ([], "the document is no object"),
        (_with("extra", 1), "unknown field extra"),
        (_edits(extra=1), "unknown field containerEdits.extra"),
        (_edits(deviceNodes=[{**NODE, "x": 1}]), "unknown field containerEdits.deviceNodes[0].x"),
        (_with("cdiVersion", "0.9.0"), "not a cdiVersion: '0.9.0'"),
        (_with("cdiVersion", "x"), "not a cdiVersion: 'x'"),
        (_with("kind", "gpu"), "not a kind: 'gpu'"),
        (_with("kind", {}), "kind is no text"),
        (_with("devices", []), "no devices"),
        (_with("devices", {}), "devices is no list"),
        (_with("devices", [{"name": "a"}]), "device a without edits"),
        (_with("devices", [{"name": "-"}]), "not a device name: '-'"),
        (_with("devices", GOOD["devices"] * 2), "device 0 twice"),
        (_edits(env=["A"]), "containerEdits: not an environment variable: 'A'"),
        (_edits(deviceNodes=[{}]), "containerEdits: a device node without a path"),
        (_edits(deviceNodes=[{**NODE, "type": "d"}]), "containerEdits: /dev/x: not a type"),
        (_edits(deviceNodes=[{**NODE, "permissions": "x"}]), "containerEdits: /dev/x: not perm"),
        (_edits(deviceNodes=[{**NODE, "major": "1"}]), "containerEdits.deviceNodes[0].major is no"),
        (_edits(deviceNodes=[{**NODE, "uid": -1}]), "containerEdits.deviceNodes[0].uid is no"),
        (_edits(hooks=[{"hookName": "x"}]), "containerEdits: not the name of a hook: 'x'"),
        (_edits(hooks=[{"hookName": "poststop"}]), "containerEdits: a hook without a path"),
        (_edits(mounts=[{"hostPath": "/x"}]), "containerEdits: a mount without a path"),
        (_edits(netDevices=[{"name": "x"}]), "containerEdits: network devices without a host"),
        (_edits(intelRdt={"closID": ".."}), "containerEdits: not a closID"),
        (_edits(intelRdt={"enableMonitoring": 1}), "containerEdits.intelRdt.enableMonitoring is"),
        (_edits(intelRdt=RDT), "cdiVersion must be at least 0.7.0"),
        (_edits(intelRdt={**RDT, "schemata": ["x"]}), "cdiVersion must be at least 1.1.0"),
        (_edits(additionalGids=[1]), "cdiVersion must be at least 0.7.0"),
        (
            {**_with("annotations", {"a": "b"}), "cdiVersion": "0.5.0"},
            "cdiVersion must be at least",
        ),
        ({**_with("kind", "a.b/c.d"), "cdiVersion": "0.5.0"}, "cdiVersion must be at least 0.6.0"),
        (_with("cdiVersion", "0.4.0"), "cdiVersion must be at least 0.5.0"),
    ],
)
def test_cdi_ignores_a_file_with_any_error(value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"):
        read(value)


@pytest.mark.parametrize("version", ["0.5.0", "v0.6.0", "1.1.0", "1.2.0", "2.0.0"])
def test_a_version_after_the_last_that_is_known_may_be_known_to_the_runtime(version: str) -> None:
    assert read(_with("cdiVersion", version)).kind == "nvidia.com/gpu"


def test_words_and_names_are_taken_as_gos_decoders_take_them() -> None:
    device = {"NAME": 0, "containerEdits": {"env": ["A=1"], "deviceNodes": None}}
    document = read({**_with("devices", [device]), "containerEdits": None})
    assert list(document.devices) == ["0"]
    assert read(_edits(deviceNodes=[{**NODE, "major": 1.0}])).edits["deviceNodes"][0]["major"] == 1
