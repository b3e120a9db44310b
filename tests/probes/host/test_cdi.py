"""CDI specifications on the host."""

import json
from typing import Any

import pytest

from agent.model.host import CdiSpec
from agent.probes.host.cdi import cdi_specs
from tests.probes.host.host_parts import HostTree, files_of

LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
SPEC: dict[str, Any] = {
    "cdiVersion": "0.6.0",
    "kind": "nvidia.com/gpu",
    "containerEdits": {
        "mounts": [{"hostPath": "/etc/x", "containerPath": "/etc/x"}, {"hostPath": LIBRARY}],
        "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
    },
    "devices": [
        {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}},
        {
            "name": "GPU-1",
            "containerEdits": {
                "deviceNodes": [{"path": "/dev/nvidia1", "hostPath": "/dev/other1"}],
            },
        },
    ],
}
DEV = "dev/\n  nvidiactl =\n  nvidia0 =\n  nvidia1 =\n"


def _spec(place: str, name: str, document: Any) -> str:
    return f"{place}/\n  {name} = {json.dumps(document)}\n"


def test_a_specification_has_devices_driver_and_missing_nodes(host_tree: HostTree) -> None:
    files = files_of(host_tree(_spec("run/cdi", "nvidia.yaml", SPEC) + DEV))
    assert cdi_specs(files) == (
        CdiSpec(
            path="/run/cdi/nvidia.yaml",
            kind="nvidia.com/gpu",
            devices=("0", "GPU-1"),
            driver_version="580.95.05",
            missing=("/dev/nvidia-uvm", "/dev/other1"),
        ),
    )


@pytest.mark.parametrize("dev", ["", "dev/\n  null =\n"])
def test_nothing_is_missing_where_the_drivers_nodes_are_not_seen(
    dev: str, host_tree: HostTree
) -> None:
    found = cdi_specs(files_of(host_tree(_spec("etc/cdi", "a.json", SPEC) + dev)))
    assert [spec.missing for spec in found or ()] == [()]


def test_specifications_of_both_directories_are_read(host_tree: HostTree) -> None:
    tree = _spec("etc/cdi", "b.json", {"kind": "a.com/x"}) + "  note.txt = x\n"
    tree += _spec("var/run/cdi", "a.yaml", {"kind": 3, "devices": ["x"]})
    assert cdi_specs(files_of(host_tree(tree))) == (
        CdiSpec(path="/etc/cdi/b.json", kind="a.com/x"),
        CdiSpec(path="/var/run/cdi/a.yaml"),
    )


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", '{"kind": ', "not JSON"),
        ("a.yaml", "{", "not YAML"),
        ("a.json", "[]", "not a CDI specification: no mapping"),
        ("a.yaml", "3", "not a CDI specification: no mapping"),
        ("a.json", "[" * 90 + "]" * 90, "nested more than"),
    ],
)
def test_a_file_that_is_none_is_listed_with_an_issue(
    name: str, text: str, reason: str, host_tree: HostTree
) -> None:
    files = files_of(host_tree(f"etc/cdi/\n  {name} = {text}\n"))
    assert cdi_specs(files) == (CdiSpec(path=f"/etc/cdi/{name}"),)
    assert [issue.reason.startswith(reason) for issue in files.issues] == [True]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("etc/cdi/\n", ()),
        ("etc/\n  os-release = x\nrun/\n", ()),
        ("etc/\n  os-release = x\n", None),
        ("etc/containerd/\nrun/\n", None),
    ],
)
def test_no_directory_means_none_only_where_the_whole_host_is_seen(
    tree: str, expected: tuple[CdiSpec, ...] | None, host_tree: HostTree
) -> None:
    assert cdi_specs(files_of(host_tree(tree))) == expected


@pytest.mark.parametrize(
    "library",
    ["/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.1.1", "/x/libnvidia-ptxjitcompiler.so.580.95"],
)
def test_other_libraries_have_no_driver_version(library: str, host_tree: HostTree) -> None:
    document = {"containerEdits": {"mounts": [{"hostPath": library}, 5], "deviceNodes": 7}}
    found = cdi_specs(files_of(host_tree(_spec("etc/cdi", "a.json", document))))
    assert [spec.driver_version for spec in found or ()] == [None]


def test_a_specification_that_is_no_file_is_listed_with_an_issue(host_tree: HostTree) -> None:
    files = files_of(host_tree("etc/cdi/a.json/\n  b = x\n"))
    assert cdi_specs(files) == (CdiSpec(path="/etc/cdi/a.json"),)
    assert [issue.subject for issue in files.issues] == ["etc/cdi/a.json"]


def test_a_host_that_shows_nothing_is_unknown(host_tree: HostTree) -> None:
    assert cdi_specs(files_of(host_tree("opt/\n"))) is None


def test_only_device_nodes_in_dev_can_be_missing_and_each_once(host_tree: HostTree) -> None:
    nodes = [{"path": path} for path in ("/run/nvidia/driver/dev/nvidia7", "/dev/x", "/dev/x")]
    spec = {"kind": "nvidia.com/gpu", "containerEdits": {"deviceNodes": nodes}}
    (found,) = cdi_specs(files_of(host_tree(_spec("etc/cdi", "a.json", spec) + DEV))) or ()
    assert found.missing == ("/dev/x",)


def test_the_number_of_specifications_is_bounded(host_tree: HostTree) -> None:
    tree = "etc/cdi/\n" + "".join(f"  {at:03}.json = {{}}\n" for at in range(257))
    found = cdi_specs(files_of(host_tree(tree)))
    assert found is not None
    assert len(found) == 256


def test_names_and_paths_of_other_types_are_taken_as_text_or_left_out(host_tree: HostTree) -> None:
    nodes = [{}, {"path": 7}, {"path": "/dev/x"}]
    spec = {
        "kind": "nvidia.com/gpu",
        "devices": [{"name": 7}, {"containerEdits": {"deviceNodes": nodes}}],
    }
    (found,) = cdi_specs(files_of(host_tree(_spec("etc/cdi", "a.json", spec) + DEV))) or ()
    assert (found.devices, found.missing) == (("7",), ("/dev/x",))
