"""``nodetopo health --clear``: what it asks, prints and refuses, with a daemon and without."""

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.gpus.health.clearing import ClearedGpu, ClearRequest, SaidFault
from nodetopo.components.gpus.health.saved import decode, encode
from nodetopo.components.gpus.health.state import Fault, GpuRecord, Heal, HealthState
from nodetopo.errors import InputError, UnreadableError
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.pci import PciAddress
from tests.cli.conftest import Cli
from tests.cli.outcome import Outcome
from tests.components.gpus.health.test_clear_socket import FAULT as LOST
from tests.components.gpus.health.test_clear_socket import GPU, serving

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schema" / "health-clear.json"

ROWS = SaidFault(reason="RowRemapFailed", kind=HealthClass.RMA, said="a row could not be remapped")
GPU3 = replace(GPU, uuid="GPU-3", name="GPU3", pci=PciAddress(0, 0x4F, 0, 0))
STILL = replace(GPU3, faults=(LOST, ROWS), left=(ROWS,), is_healthy=False)


class Node:
    """A node's state directory and its daemons, and the command that asks them."""

    def __init__(self, cli: Cli, directory: Path) -> None:
        self.cli = cli
        self.file = directory / "health.json"
        self.plugins = directory / "plugins"
        self.plugins.mkdir()
        self.requests: list[ClearRequest] = []
        self.daemons = ExitStack()

    def run(self, gpu: ClearedGpu | Exception, *, is_saved: bool = True) -> None:
        """Run a daemon that answers with *gpu*, or refuses."""

        def clear(request: ClearRequest) -> tuple[Sequence[ClearedGpu], bool]:
            self.requests.append(request)
            if isinstance(gpu, Exception):
                raise gpu
            return (gpu,), is_saved

        self.daemons.enter_context(serving(self.file.parent, clear))

    def clear(self, *arguments: str) -> Outcome:
        """Run the command."""
        where = (f"--health-file={self.file}", f"--device-plugin-dir={self.plugins}")
        return self.cli("health", "--clear", *arguments, *where)


@pytest.fixture
def node(cli: Cli, tmp_path: Path) -> Iterator[Node]:
    made = Node(cli, tmp_path)
    with capture_logs(), made.daemons:  # in a daemon the log is on standard error
        yield made


def test_a_gpu_that_is_sound_comes_back(node: Node) -> None:
    node.run(GPU3)
    done = node.clear("GPU3,4", "--clear", "5", "--yes")
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "GPU3 (GPU-3):\n  cleared: Xid79 (reboot): it fell off the bus\n  is Healthy\n"
    )
    assert node.requests == [ClearRequest(gpus=("GPU3", "4", "5"), is_confirmed=True)]


def test_a_gpu_that_still_reports_a_fault_stays_unhealthy_and_the_status_says_so(
    node: Node,
) -> None:
    node.run(STILL)
    done = node.clear("GPU3")
    assert done.code == 1
    assert done.out.splitlines()[1:] == [
        "  cleared: Xid79 (reboot): it fell off the bus",
        "  still reported: RowRemapFailed (rma): a row could not be remapped",
        "  is Unhealthy: a verdict on what the GPU reports returns at once",
    ]


def test_a_dry_run_is_asked_for_and_worded_as_one(node: Node) -> None:
    node.run(GPU3)
    done = node.clear("GPU3", "--dry-run")
    assert node.requests[0].is_dry_run
    assert "would clear: Xid79" in done.out
    assert "would be Healthy" in done.out


def test_of_two_daemons_the_worse_answer_counts(node: Node) -> None:
    node.run(GPU3)
    node.run(STILL)
    done = node.clear("GPU3", "-o", "json")
    answer = json.loads(done.out)
    Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(answer)
    assert (done.code, answer["daemons"], len(answer["gpus"])) == (1, 2, 1)
    assert [fault["reason"] for fault in answer["gpus"][0]["left"]] == ["RowRemapFailed"]


@pytest.mark.parametrize(
    ("error", "code"), [(InputError("no such GPU", "name it"), 2), (UnreadableError("no"), 3)]
)
def test_a_refusal_is_the_commands_error(node: Node, error: Exception, code: int) -> None:
    node.run(error)
    done = node.clear("GPU3")
    assert (done.code, done.out, done.err) == (code, "", f"error: {error}\n")


def test_a_verdict_that_a_restart_would_bring_back_is_a_warning(node: Node) -> None:
    node.run(GPU3, is_saved=False)
    assert "the verdict returns if the daemon restarts" in node.clear("GPU3").err


def saved(file: Path) -> None:
    fault = Fault(
        reason="Xid79",
        said="it fell off the bus",
        kind=HealthClass.REBOOT,
        heal=Heal.BOOT,
        first=1.0,
        last=1.0,
    )
    record = GpuRecord(name="GPU3", pci=PciAddress(0, 0x4F, 0, 0), faults=(fault,))
    state = HealthState(
        boot_id="one", gpus={"GPU-3": record, "GPU-4": replace(record, name="GPU4")}
    )
    file.write_text(encode(state), "utf-8")
    file.chmod(0o600)


def test_without_a_daemon_the_file_is_changed_for_its_owner_alone(node: Node) -> None:
    saved(node.file)
    before = node.file.read_text()
    done = node.clear("GPU3", "--dry-run")
    assert (done.code, node.file.read_text()) == (0, before)
    done = node.clear("4f:00.0")
    assert done.code == 0
    assert "no daemon runs on this node" in done.err
    state = decode(node.file.read_text())
    assert {gpu: len(record.faults) for gpu, record in state.gpus.items()} == {
        "GPU-3": 0,
        "GPU-4": 1,
    }
    assert node.file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [None, "{", '{"schema": "nodetopo-health/v2"}'])
def test_without_a_daemon_a_file_that_is_not_understood_is_left_alone(
    node: Node, content: str | None
) -> None:
    if content is not None:
        node.file.write_text(content)
    done = node.clear("GPU3")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith(f"error: no daemon answers, and {node.file} ")
    assert content is None or node.file.read_text() == content


def test_a_daemon_of_a_release_without_requests_keeps_the_file(node: Node) -> None:
    saved(node.file)
    before = node.file.read_text()
    with socket.socket(socket.AF_UNIX) as older:
        older.bind(str(node.plugins / "nodetopo-nvidia.com_gpu-1-00000000.sock"))
        older.listen()
        done = node.clear("GPU3")
    assert done.code == 3
    assert "takes no requests" in done.err
    assert node.file.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--clear", "GPU3", "--machine", "dgx-h100"), "--clear is for the GPUs of this node"),
        (("--clear", "GPU3", "--only", "nvlink"), "--clear is for the GPUs of this node"),
        (("--clear", ","), "--clear names no GPU"),
        (("--clear", "GPU3", "--health-file", "none"), "keep no verdicts here"),
        (("--dry-run",), "--dry-run is for --clear"),
        (("--yes",), "--yes is for --clear"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    cli: Cli, arguments: tuple[str, ...], says: str
) -> None:
    done = cli("health", *arguments)
    assert done.code == 2
    assert says in done.err


def test_a_daemon_that_starts_meanwhile_is_told_of(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(node.file)
    from nodetopo.cli import clear as command  # noqa: PLC0415 - to look at it from inside

    looks = iter([{}, {}, {node.file: 1}])
    monkeypatch.setattr(command, "processes", lambda _paths: next(looks))
    done = node.clear("GPU3")
    assert done.code == 3
    assert "a daemon started meanwhile" in done.err
