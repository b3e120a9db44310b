import json
import os
import stat
import threading
from pathlib import Path

import pytest

from nodetopo.deviceplugin.cdi_writer import CdiFile
from nodetopo.deviceplugin.host_files import MAX_BYTES, HostFile

KIND = "device-plugin.nodetopo.io/gpu"
NAME = "nodetopo-device-plugin.nodetopo.io-gpu.json"
SPEC = {"cdiVersion": "0.3.0", "kind": KIND, "devices": [{"name": "a"}]}
OTHER = {**SPEC, "devices": [{"name": "b"}]}


@pytest.fixture
def file(tmp_path: Path) -> CdiFile:
    return CdiFile(tmp_path / "run/cdi", KIND)


def names(file: CdiFile) -> list[str]:
    return sorted(one.name for one in file.path.parent.iterdir())


def test_a_specification_is_written_for_everybody_to_read(file: CdiFile) -> None:
    assert file.write(SPEC) is None
    assert names(file) == [NAME]
    assert json.loads(file.path.read_text("utf-8")) == SPEC
    assert file.devices() == {"a"}
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o644


def test_an_unchanged_specification_is_not_written_again(file: CdiFile) -> None:
    file.write(SPEC)
    before = file.path.stat().st_ino
    file.write(SPEC)
    assert file.path.stat().st_ino == before
    file.write(OTHER)
    assert file.path.stat().st_ino != before
    assert json.loads(file.path.read_text("utf-8")) == OTHER


def test_a_reader_finds_one_whole_specification_at_every_moment(file: CdiFile) -> None:
    file.write(SPEC)
    seen: set[str] = set()
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            for one in file.path.parent.iterdir():
                if one.suffix in {".json", ".yaml"}:  # what a runtime looks at
                    seen.add(one.read_text("utf-8"))

    reader = threading.Thread(target=read)
    reader.start()
    long = {**SPEC, "devices": [{"name": f"d{n}"} for n in range(2000)]}
    written = 0
    while reader.is_alive() and (written < 60 or len(seen) < 2):  # its turn may come late
        file.write({**long, "n": written})
        written += 1
    is_over.set()
    reader.join()
    assert len(seen) > 1
    assert {json.loads(text)["kind"] for text in seen} == {KIND}


def test_a_missing_directory_is_made(file: CdiFile) -> None:
    assert not file.path.parent.exists()
    assert file.write(SPEC) is None
    assert file.path.exists()


def test_a_directory_that_cannot_be_written_is_a_warning_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "cdi").write_text("a file, where even root can make no file below")
    problem = CdiFile(tmp_path / "cdi", KIND).write(SPEC)
    assert problem is not None
    assert problem.endswith(f"cannot write {tmp_path}/cdi/{NAME}: File exists")


def test_a_full_disk_leaves_the_old_specification(
    file: CdiFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write(SPEC)

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    assert "No space left on device" in str(file.write(OTHER))
    assert file.devices() == {"a"}
    assert json.loads(file.path.read_text("utf-8")) == SPEC
    assert names(file) == [NAME]


def test_what_a_killed_writer_left_is_deleted_and_nothing_else(file: CdiFile) -> None:
    file.path.parent.mkdir(parents=True)
    old = (f".{NAME}.x1.tmp", f".{NAME}.yaml", ".nvidia.yaml.x1.tmp", "spec.123.tmp")
    for name in (*old, f".{NAME}.now.tmp"):  # the last is another's that writes just now
        (file.path.parent / name).touch()
    for name in old:
        os.utime(file.path.parent / name, (0, 0))
    file.write(SPEC)
    assert names(file) == sorted([NAME, f".{NAME}.now.tmp", *old[1:]])


def test_only_a_file_of_our_name_and_kind_is_deleted(file: CdiFile) -> None:
    file.write(SPEC)
    others = ("nvidia.yaml", "device-plugin.nodetopo.io-gpu.json", f"{NAME}.yaml")
    for name in others:
        (file.path.parent / name).write_text(json.dumps(SPEC))
    assert file.remove() is None
    assert names(file) == sorted(others)
    assert file.remove() is None  # nothing to do


@pytest.mark.parametrize("text", ['{"kind": "nvidia.com/gpu"}', "[]", "not JSON"])
def test_a_file_of_our_name_with_another_kind_is_left_alone(file: CdiFile, text: str) -> None:
    file.path.parent.mkdir(parents=True)
    file.path.write_text(text)
    assert "was left alone" in str(file.remove())
    assert file.path.read_text("utf-8") == text


def test_what_is_no_plain_file_is_neither_waited_for_nor_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "other").write_text("others'")
    (tmp_path / "link").symlink_to("other")
    for name in ("pipe", "link"):
        file = HostFile(tmp_path / name)
        assert file.read().data is None
        assert file.read().problem is not None
        assert file.write("ours") is None
        assert file.read().text == "ours"
    assert (tmp_path / "other").read_text() == "others'"


def test_a_file_is_for_whom_it_is_meant_and_of_bounded_size(tmp_path: Path) -> None:
    file = HostFile(tmp_path / "a", mode=0o600)
    assert file.write("x" * (MAX_BYTES + 2)) is None
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert len(file.read().data or b"") == MAX_BYTES + 1


def test_a_file_that_cannot_be_deleted_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert HostFile(tmp_path / "a").remove() in {
        f"cannot delete {tmp_path}/a: Is a directory",
        f"cannot delete {tmp_path}/a: Operation not permitted",
    }
