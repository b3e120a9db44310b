"""The live node: our NVML library, loaded by the real bindings, over an unpacked sysfs."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodetopo.cli.source import with_example
from nodetopo.errors import NvmlUnavailable
from tests.cli.conftest import Cli
from tests.cli.outcome import READERS, slug

NODES = Path(__file__).parents[1] / "nodes"
SHAPE = "h100x8-nvswitch-2numa-8cx7"
GPU_COMMANDS = tuple(command for command in READERS if command[0] not in ("health", "audit"))

Live = Callable[..., tuple[str, ...]]


@pytest.fixture
def live(
    fake_nvml_library: Path,
    unpacked: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Live:
    """Return a function that gives the flags of the node *shape*; without NVML on request."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))

    def flags(*, library: Path = fake_nvml_library) -> tuple[str, ...]:
        host = unpacked(SHAPE)
        monkeypatch.setenv("NODETOPO_FAKE_NVML", str(NODES / SHAPE))
        return (
            f"--nvml-library={library}",
            f"--sysfs-root={host / 'sys'}",
            f"--procfs-root={host / 'proc'}",
            f"--host-root={host}",
            "--node-name=dgx-h100",
        )

    return flags


def test_a_live_node_prints_the_matrix_of_its_machine(cli: Cli, live: Live) -> None:
    expected = cli("topo", "matrix", "--machine", "dgx-h100")
    assert cli("topo", "matrix", *live()) == expected


@pytest.mark.parametrize("command", GPU_COMMANDS, ids=map(slug, GPU_COMMANDS))
def test_a_captured_node_answers_as_the_live_one(
    cli: Cli,
    live: Live,
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    path = str(tmp_path / "node.json")
    assert cli("capture", "-o", path, *live()).code == 0
    expected = cli(*command, "-o", "json", *live())
    assert cli(*command, "-o", "json", "--snapshot", path) == expected


@pytest.mark.parametrize("command", ["health", "audit"])
def test_a_captured_node_passes_the_checks_that_the_live_one_does(
    cli: Cli,
    live: Live,
    tmp_path: Path,
    command: str,
) -> None:
    path = str(tmp_path / "node.json")
    cli("capture", "-o", path, *live())
    found = cli(command, "-o", "json", "--snapshot", path)
    expected = cli(command, "-o", "json", *live())
    assert (found.code, _results(found.out)) == (expected.code, _results(expected.out))


@pytest.mark.parametrize("command", GPU_COMMANDS, ids=map(slug, GPU_COMMANDS))
def test_a_gpu_command_without_nvml_could_not_tell(
    cli: Cli,
    live: Live,
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    outcome = cli(*command, *live(library=tmp_path / "libnvidia-ml.so.1"))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (3, "", 1)
    assert outcome.err.startswith("error: cannot load ")
    assert " — " in outcome.err
    assert outcome.err.endswith(", or try `--machine dgx-h100`\n")


def test_a_driver_that_fails_is_no_reason_to_look_at_another_machine() -> None:
    mismatch = NvmlUnavailable("versions differ", "reboot", code=18)
    missing = NvmlUnavailable("no library", code=12)
    assert with_example(mismatch) is mismatch
    assert with_example(missing).cure == "try `--machine dgx-h100`"


def test_health_without_nvml_says_why_and_could_not_tell(
    cli: Cli,
    live: Live,
    tmp_path: Path,
) -> None:
    outcome = cli("health", *live(library=tmp_path / "libnvidia-ml.so.1"))
    unknown, cure, footer = outcome.out.splitlines()
    assert unknown.startswith("? not known: GPUs, NVLinks (library: cannot load ")
    assert "GPU-001, " in unknown
    assert cure == (
        "  → name the driver's library, or its directory, with --nvml-library, "
        "or try `--machine dgx-h100`"
    )
    assert footer.startswith("0 failed · 0 warned · 17 unknown · 4 passed (--all lists them)")
    assert (outcome.code, outcome.err) == (3, "")


@pytest.mark.parametrize("form", ["table", "short", "json", "yaml"])
@pytest.mark.parametrize("command", ["health", "audit"])
def test_what_could_not_be_read_is_reported_once(
    cli: Cli, live: Live, tmp_path: Path, command: str, form: str
) -> None:
    outcome = cli(command, "-o", form, *live(library=tmp_path / "libnvidia-ml.so.1"))
    whole = outcome.out + outcome.err
    for cause in ("cannot load libnvidia-ml.so.1", "pod resources at "):
        is_asked = command == "audit" or "pod" not in cause
        assert (cause, " ".join(whole.split()).count(cause)) == (cause, int(is_asked))
    assert outcome.code in (1, 3)


def test_what_no_chosen_check_needs_is_an_error_all_the_same(
    cli: Cli, live: Live, tmp_path: Path
) -> None:
    flags = live(library=tmp_path / "libnvidia-ml.so.1")
    outcome = cli("audit", "--only", "KRN-005", *flags)
    assert outcome.code == 3
    assert outcome.err.startswith("error: cannot load ")
    assert "not known" not in outcome.out


def test_a_snapshot_without_gpus_says_so_once(cli: Cli, live: Live, tmp_path: Path) -> None:
    path = str(tmp_path / "node.json")
    cli("capture", "-o", path, *live(library=tmp_path / "libnvidia-ml.so.1"))
    outcome = cli("health", "--snapshot", path)
    assert outcome.out.count("cannot load") == 1
    assert (outcome.out.count("\n"), outcome.err) == (2, "")


def test_a_capture_without_nvml_is_written_and_called_incomplete(
    cli: Cli,
    live: Live,
    tmp_path: Path,
) -> None:
    path = tmp_path / "node.json"
    outcome = cli("capture", "-o", str(path), *live(library=tmp_path / "libnvidia-ml.so.1"))
    assert outcome.code == 3
    assert json.loads(path.read_text(encoding="utf-8"))["hcas"]


def test_a_raw_capture_is_a_directory_like_those_of_the_tests(
    cli: Cli, live: Live, tmp_path: Path
) -> None:
    target = tmp_path / "raw"
    target.mkdir()  # an empty directory is as good as none
    outcome = cli("capture", "--raw", "-o", str(target), *live())
    assert outcome.code == 0, outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw"]
    files = ["nvml.txt", "snapshot.json", "sysfs.txt"]
    assert sorted(path.name for path in target.iterdir()) == files
    assert all((NODES / SHAPE / name).is_file() for name in files)
    assert cli("topo", "matrix", "--snapshot", str(target / "snapshot.json")) == cli(
        "topo", "matrix", *live()
    )


def test_a_raw_capture_that_cannot_be_written_leaves_nothing(
    cli: Cli, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    outcome = cli("capture", "--raw", "-o", str(tmp_path / "raw"), *live())
    assert (outcome.code, list(tmp_path.iterdir())) == (2, [])


def test_a_raw_capture_without_nvml_is_written_and_called_incomplete(
    cli: Cli, live: Live, tmp_path: Path
) -> None:
    target = tmp_path / "raw"
    outcome = cli("capture", "--raw", "-o", str(target), *live(library=tmp_path / "none.so"))
    assert (outcome.code, "error: cannot load" in outcome.err) == (3, True)
    assert json.loads((target / "snapshot.json").read_text(encoding="utf-8"))["hcas"]


def test_a_command_in_the_daemon_s_container_follows_its_variables(
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NODETOPO_MACHINE", "dgx-1v")
    assert cli("labels") == cli("labels", "--machine", "dgx-1v")


def _results(text: str) -> object:
    return json.loads(text)["results"]
