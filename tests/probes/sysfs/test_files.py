"""Single files: absent is nothing, any other failure is an issue."""

from pathlib import Path

import pytest

from nodetopo.model.numa import CpuSet
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.sysfs.files import Files


def test_a_file_that_is_not_there_is_none_and_no_issue(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    files = Files("pcie", tmp_path)
    assert (files.text("none"), files.number("file/below"), files.names("none"), files.issues) == (
        None,
        None,
        None,
        (),
    )


def test_a_file_that_fails_otherwise_is_an_issue_with_the_error_number(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    files = Files("pcie", tmp_path)
    assert (files.text("directory"), files.issues) == (
        None,
        (ProbeIssue(probe="pcie", subject="directory", reason="EISDIR: Is a directory"),),
    )


def test_content_of_the_wrong_kind_is_an_issue(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("many\n")
    (tmp_path / "cpus").write_text("0-x\n")
    files = Files("cpu", tmp_path)
    assert (files.number("number"), files.cpus("cpus"), [i.reason for i in files.issues]) == (
        None,
        None,
        ["not a number: 'many'", "not a CPU list: '0-x'"],
    )


def test_the_same_failure_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("many\n")
    files = Files("cpu", tmp_path)
    for _ in range(3):
        files.number("number")
    assert len(files.issues) == 1


def test_values_are_read_without_the_white_space_around_them(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("0x10DE\n")
    (tmp_path / "number").write_text("-1\n")
    (tmp_path / "cpus").write_text("\n")
    files = Files("pcie", tmp_path)
    assert (files.hex_id("id"), files.number("number"), files.cpus("cpus")) == (
        "10de",
        -1,
        CpuSet(),
    )


def test_a_link_out_of_the_tree_is_an_issue(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/out").symlink_to("..")
    files = Files("rdma", tmp_path / "root")
    assert (files.real("out"), [issue.subject for issue in files.issues]) == (None, ["out"])


def test_a_circle_of_links_is_an_issue(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    files = Files("rdma", tmp_path)
    assert (files.real("a"), len(files.issues)) == (None, 1)


@pytest.mark.parametrize(
    "content", [b"NVIDIA Jetson\0", b" NVIDIA Jetson\n\0\0", b"NVIDIA Jetson\0\n"]
)
def test_a_file_may_end_in_nul(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model").write_bytes(content)
    assert Files("host", tmp_path).text("model") == "NVIDIA Jetson"


def test_a_number_a_list_and_an_id_may_end_in_nul(tmp_path: Path) -> None:
    for name, content in (("numa_node", b"1\0"), ("cpulist", b"0-3\n\0"), ("vendor", b"0x10DE\0")):
        (tmp_path / name).write_bytes(content)
    files = Files("pcie", tmp_path)
    assert (files.number("numa_node"), files.cpus("cpulist"), files.hex_id("vendor")) == (
        1,
        CpuSet.parse("0-3"),
        "10de",
    )
    assert files.issues == ()
