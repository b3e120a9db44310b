"""CDI specifications on the host."""

import json
from typing import Any

import pytest

from nodetopo.model.cdi import CdiFault, CdiSpec
from nodetopo.model.host import ContainerToolkit, RuntimeConfig
from nodetopo.probes.host.cdi import cdi_specs, configured_directories, specs_of_programs
from nodetopo.probes.host.paths import HostPaths
from nodetopo.probes.sysfs.files import Files
from tests.probes.host.host_parts import HostTree, files_of

LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
SPEC: dict[str, Any] = {
    "cdiVersion": "0.6.0",
    "kind": "nvidia.com/gpu",
    "containerEdits": {
        "mounts": [{"hostPath": path, "containerPath": path} for path in ("/etc/x", LIBRARY)],
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


def _read(files: Files) -> tuple[CdiSpec, ...] | None:
    return cdi_specs(files, HostPaths(files))


def _document(**edits: Any) -> dict[str, Any]:
    """Return a specification of one device with *edits*."""
    device = {"name": "all", "containerEdits": {"env": ["A=1"], **edits}}
    return {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [device]}


def _reasons(files: Files) -> list[str]:
    return [fault.reason for spec in _read(files) or () for fault in spec.faults]


def test_a_specification_has_devices_driver_and_faults(host_tree: HostTree) -> None:
    files = files_of(host_tree(_spec("run/cdi", "nvidia.yaml", SPEC) + DEV))
    assert _read(files) == (
        CdiSpec(
            path="/run/cdi/nvidia.yaml",
            kind="nvidia.com/gpu",
            devices=("0", "GPU-1"),
            driver_version="580.95.05",
            faults=(
                CdiFault(reason="names /dev/nvidia-uvm, which does not exist"),
                CdiFault(reason="names /dev/other1, which does not exist", devices=("GPU-1",)),
            ),
            unseen=(LIBRARY,),
        ),
    )


@pytest.mark.parametrize("dev", ["", "dev/\n  null =\n"])
def test_nothing_is_missing_where_the_drivers_nodes_are_not_seen(
    dev: str, host_tree: HostTree
) -> None:
    (found,) = _read(files_of(host_tree(_spec("etc/cdi", "a.json", SPEC) + dev))) or ()
    assert found.faults == ()
    assert found.unseen == (
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        LIBRARY,
        "/dev/nvidia0",
        "/dev/other1",
    )


def test_specifications_of_all_directories_are_read(host_tree: HostTree) -> None:
    tree = _spec("etc/cdi", "b.json", {"kind": "a.com/x"}) + "  note.txt = x\n"
    tree += _spec("var/run/cdi", "a.yaml", {"kind": 3, "devices": ["x"]})
    tree += _spec("opt/cdi", "c.json", _document())
    files = files_of(host_tree(tree))
    runtime = RuntimeConfig(name="containerd", path="/x", cdi_dirs=("/etc/cdi", "/opt/cdi"))
    toolkit = ContainerToolkit(path="/y", cdi_dirs=("/none",))
    places = configured_directories((runtime,), toolkit)
    assert places == ("/etc/cdi", "/var/run/cdi", "/opt/cdi", "/none")
    found = cdi_specs(files, HostPaths(files), places)
    assert [(spec.path, spec.kind, spec.error) for spec in found or ()] == [
        ("/etc/cdi/b.json", "a.com/x", "not a cdiVersion: ''"),
        ("/opt/cdi/c.json", "nvidia.com/gpu", None),
        ("/var/run/cdi/a.yaml", None, "devices[0] is no object"),
    ]


@pytest.mark.parametrize(("more", "is_known"), [("", False), ("var/cdi/static/\n", True)])
def test_a_runtimes_own_directories_must_be_seen(
    more: str, host_tree: HostTree, *, is_known: bool
) -> None:
    files = files_of(host_tree(_spec("etc/cdi", "a.json", _document()) + more))
    dirs = ("/var/cdi/static", "/var/cdi/dynamic")
    runtime = RuntimeConfig(name="containerd", path="/x", cdi_dirs=dirs)
    found = specs_of_programs(files, HostPaths(files), (runtime,), None)
    assert (found is not None) == is_known


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", '{"kind": ', "not YAML"),
        ("a.yaml", "{", "not YAML"),
        ("a.json", "[]", "the document is no object"),
        ("a.yaml", "3", "the document is no object"),
        ("a.json", "[" * 90 + "]" * 90, "nested more than"),
        ("a.json", "", "no content"),
    ],
)
def test_a_file_that_cdi_ignores_is_listed_with_the_reason(
    name: str, text: str, reason: str, host_tree: HostTree
) -> None:
    files = files_of(host_tree(f"etc/cdi/\n  {name} = {text}\n"))
    (found,) = _read(files) or ()
    assert (found.path, found.kind) == (f"/etc/cdi/{name}", None)
    assert str(found.error).startswith(reason)
    assert [issue.reason for issue in files.issues] == [f"CDI ignores it: {found.error}"]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("etc/cdi/\n", ()),
        ("etc/\n  os-release = x\nrun/\n", ()),
        ("etc/\n  os-release = x\n", None),
        ("etc/containerd/\nrun/\n", None),
        ("opt/\n", None),
    ],
)
def test_no_directory_means_none_only_where_the_whole_host_is_seen(
    tree: str, expected: tuple[CdiSpec, ...] | None, host_tree: HostTree
) -> None:
    assert _read(files_of(host_tree(tree))) == expected


@pytest.mark.parametrize(
    "library",
    ["/usr/lib/libcuda.so.1", "/usr/lib/libcuda.so.1.1", "/x/libnvidia-ptxjitcompiler.so.580.95"],
)
def test_other_libraries_have_no_driver_version(library: str, host_tree: HostTree) -> None:
    document = _document(mounts=[{"hostPath": library, "containerPath": "/x"}])
    found = _read(files_of(host_tree(_spec("etc/cdi", "a.json", document))))
    assert [spec.driver_version for spec in found or ()] == [None]


def test_a_directory_is_no_specification(host_tree: HostTree) -> None:
    files = files_of(host_tree("etc/cdi/a.json/\n  b = x\n"))
    assert _read(files) == ()
    assert files.issues == ()


def test_a_node_below_another_root_is_looked_up_there(host_tree: HostTree) -> None:
    paths = ("/run/nvidia/driver/dev/nvidia7", "/dev/x", "/dev/x")
    nodes = [{"path": "/dev/y", "hostPath": path} for path in paths]
    tree = _spec("etc/cdi", "a.json", _document(deviceNodes=nodes)) + DEV
    (found,) = _read(files_of(host_tree(tree))) or ()
    assert [fault.reason for fault in found.faults] == ["names /dev/x, which does not exist"]
    assert found.unseen == ("/run/nvidia/driver/dev/nvidia7",)


def test_the_number_of_specifications_is_bounded(host_tree: HostTree) -> None:
    tree = "etc/cdi/\n" + "".join(f"  {at:03}.json = {{}}\n" for at in range(257))
    found = _read(files_of(host_tree(tree)))
    assert found is not None
    assert len(found) == 256


UVM = "dev/\n  nvidiactl =\n  nvidia-uvm =\n"
MAJORS = "proc/\n  devices |\n    |Character devices:\n    |195 nvidia\n    |509 nvidia-uvm\n"


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ({"type": "c", "major": 510}, "gives /dev/nvidia-uvm as 510:0, and the driver's major"),
        ({"major": 510, "minor": 1}, "gives /dev/nvidia-uvm as 510:1, and the driver's major"),
        ({"type": "u", "major": 509}, None),
        ({}, None),
    ],
)
def test_the_number_of_a_node_must_be_the_drivers(
    node: dict[str, Any], reason: str | None, host_tree: HostTree
) -> None:
    document = _document(deviceNodes=[{"path": "/dev/nvidia-uvm", **node}])
    root = host_tree(_spec("etc/cdi", "a.json", document) + UVM + MAJORS)
    files = files_of(root)
    (found,) = cdi_specs(files, HostPaths(files, files_of(root / "proc"))) or ()
    reasons = [fault.reason for fault in found.faults]
    assert [str(reason) in each for each in reasons] == ([] if reason is None else [True])


WHOLE = "etc/\n  os-release = x\nusr/bin/\n  x =\nusr/lib/\n  libx.so.1 =\n"
"""A host of which everything can be seen."""


@pytest.mark.parametrize(
    ("path", "links", "exists"),
    [
        ("/usr/lib/libx.so.1", "", True),
        ("/usr/lib/liby.so.1", "", False),
        ("/lib/libx.so.1", "", False),
        ("/lib/libx.so.1", "  lib -> usr/lib\n", True),
        ("/run/x", "", False),
        ("/opt/x", "  x -> /usr/lib/libx.so.1\n", False),
    ],
)
def test_every_mount_must_exist(
    path: str, links: str, host_tree: HostTree, *, exists: bool
) -> None:
    document = _document(mounts=[{"hostPath": path, "containerPath": "/x"}])
    root = host_tree(_spec("etc/cdi", "a.json", document) + WHOLE)
    if links:
        name, _, target = links.strip().partition(" -> ")
        (root / name).symlink_to(target)
    expected = [] if exists else [f"mounts {path}, which does not exist"]
    assert _reasons(files_of(root)) == expected


def test_a_link_leads_to_the_hosts_file_not_to_ours(host_tree: HostTree) -> None:
    document = _document(mounts=[{"hostPath": "/opt/a", "containerPath": "/x"}])
    root = host_tree(_spec("etc/cdi", "a.json", document) + WHOLE + "opt/\n  b =\n")
    (root / "opt/a").symlink_to("/usr/lib/libx.so.1")
    assert _reasons(files_of(root)) == []
    (root / "opt/a").unlink()
    (root / "opt/a").symlink_to("/bin/sh")
    assert _reasons(files_of(root)) == ["mounts /opt/a, which does not exist"]
    (root / "opt/a").unlink()
    (root / "opt/a").symlink_to("a")
    assert _reasons(files_of(root)) == ["mounts /opt/a, which does not exist"]


@pytest.mark.parametrize(("path", "is_found"), [("/usr/bin/x", False), ("/usr/bin/y", True)])
def test_every_hook_must_exist(path: str, host_tree: HostTree, *, is_found: bool) -> None:
    document = _document(hooks=[{"hookName": "createContainer", "path": path}])
    files = files_of(host_tree(_spec("etc/cdi", "a.json", document) + WHOLE))
    expected = [f"calls {path}, which does not exist"] if is_found else []
    assert _reasons(files) == expected


def test_a_mount_that_is_no_path_of_the_host_needs_none(host_tree: HostTree) -> None:
    mount = {"hostPath": "tmpfs", "containerPath": "/x", "type": "tmpfs"}
    files = files_of(host_tree(_spec("etc/cdi", "a.json", _document(mounts=[mount])) + WHOLE))
    assert _reasons(files) == []


def test_usr_alone_shows_what_links_in_the_root_lead_to(host_tree: HostTree) -> None:
    paths = ("/lib/libx.so.1", "/lib/firmware/x", "/bin/x")
    mounts = [{"hostPath": path, "containerPath": path} for path in paths]
    tree = _spec("etc/cdi", "a.json", _document(mounts=mounts))
    files = files_of(host_tree(tree + WHOLE.replace("os-release", "hostname")))
    assert _reasons(files) == ["mounts /lib/firmware/x, which does not exist"]
