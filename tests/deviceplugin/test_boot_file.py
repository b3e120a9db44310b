"""What a process leaves for the next one of the same boot."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodetopo.deviceplugin.boot_file import BootFile, read_boot_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Some content."""

    names: tuple[str, ...]
    count: int = 0


def file(
    path: Path, *, boot_id: str = "boot-1", schema: str = "nodetopo-seen/v1"
) -> BootFile[Seen]:
    return BootFile(path, Seen, schema=schema, boot_id=boot_id, problem="not remembered")


def test_the_next_process_of_the_boot_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "seen.json"
    assert file(path).load() is None
    assert file(path).save(Seen(names=("a", "b"), count=2))
    assert file(path).load() == Seen(names=("a", "b"), count=2)


def test_another_boot_and_another_schema_count_for_nothing_and_are_overwritten(
    tmp_path: Path,
) -> None:
    path = tmp_path / "seen.json"
    file(path).save(Seen(names=("a",)))
    for other in (file(path, boot_id="boot-2"), file(path, schema="nodetopo-seen/v2")):
        with capture_logs() as logs:
            assert other.load() is None
        assert logs == []
        other.save(Seen(names=("c",)))
        assert other.load() == Seen(names=("c",))


def test_fields_of_a_newer_release_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    file(path).save(Seen(names=("a",), count=4))
    path.write_text(path.read_text().replace('"count": 4', '"count": 4, "later": [1]'))
    assert file(path).load() == Seen(names=("a",), count=4)


@pytest.mark.parametrize("text", ["{", "[]", "null", "\0", '"x"'])
def test_damage_is_named_and_is_no_content(tmp_path: Path, text: str) -> None:
    path = tmp_path / "seen.json"
    path.write_text(text)
    with capture_logs() as logs:
        assert file(path).load() is None
    assert [line["event"] for line in logs] == ["not remembered"]


def test_the_boot_is_read_from_the_kernel(tmp_path: Path) -> None:
    assert read_boot_id(tmp_path) is None
    path = tmp_path / "sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_text("3f1d0b9e-0000-4000-8000-000000000000\n")
    assert read_boot_id(tmp_path) == "3f1d0b9e-0000-4000-8000-000000000000"
    path.write_text("\n")
    assert read_boot_id(tmp_path) is None


def test_the_boot_of_this_machine_has_a_name() -> None:
    assert read_boot_id(Path("/proc"))
