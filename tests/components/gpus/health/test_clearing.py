"""Verdicts that an operator ends: which GPUs, on which conditions, and what comes back."""

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.gpus.health.clearing import ClearedGpu, ClearRequest
from nodetopo.components.gpus.health.saved import decode
from nodetopo.errors import AgentError, InputError, UnreadableError
from nodetopo.model.nvml_event import NvmlStatus, NvmlTrouble
from nodetopo.model.snapshot import Snapshot
from tests.components.gpus.health.gpu_history import (
    FAILED,
    FINE,
    SOUND,
    A,
    B,
    gpu,
    node,
    seen,
    trouble,
    with_links_down,
    xid,
)
from tests.components.gpus.health.watched_gpus import Daemon


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    made = Daemon(tmp_path / "health.json")
    made.watch.look(SOUND, FINE)
    return made


def clear(
    daemon: Daemon,
    *names: str,
    shows: Snapshot = SOUND,
    nvml: NvmlStatus = FINE,
    **options: Any,
) -> tuple[ClearedGpu, ...]:
    """Return the answer to a request that a scan with *shows* answers."""
    daemon.now += 1

    def scan() -> None:
        daemon.watch.look(shows, nvml)

    request = ClearRequest(gpus=names, **options)
    return daemon.watch.clear(request, scan, patience_s=0)[0]


def told(daemon: Daemon) -> list[tuple[str, str]]:
    return [(notice.reason, notice.message) for notice in daemon.watch.notices()]


def test_one_gpu_comes_back_and_the_others_keep_their_verdicts(daemon: Daemon) -> None:
    daemon.watch.take_events([xid(79), xid(95, on=B)])
    told(daemon)
    (cleared,) = clear(daemon, "GPU0")
    assert daemon.reasons == {B: "Xid95"}
    assert (cleared.uuid, cleared.name, cleared.is_healthy, cleared.left) == (A, "GPU0", True, ())
    assert [fault.reason for fault in cleared.faults] == ["Xid79"]
    assert told(daemon) == [
        ("HealthCleared", f"GPU0 ({A}): an operator cleared Xid79"),
        ("GpuRecovered", f"GPU0 ({A}): Healthy"),
    ]
    daemon.restart()
    assert daemon.reasons == {B: "Xid95"}


def test_a_fault_that_the_gpu_still_reports_is_never_gone_for_a_moment(daemon: Daemon) -> None:
    broken = seen(remapped_rows=FAILED)
    daemon.watch.look(broken, FINE)
    daemon.watch.take_events([xid(79)])
    told(daemon)
    daemon.changes = 0
    (cleared,) = clear(daemon, "0", shows=broken, is_confirmed=True)
    assert daemon.reasons == {A: "RowRemapFailed"}
    assert not cleared.is_healthy
    assert [fault.reason for fault in cleared.faults] == ["RowRemapFailed", "Xid79"]
    assert [fault.reason for fault in cleared.left] == ["RowRemapFailed"]
    text = "an operator cleared RowRemapFailed, Xid79; the GPU still reports RowRemapFailed"
    assert told(daemon) == [("HealthCleared", f"GPU0 ({A}): {text}")]


@pytest.mark.parametrize(
    ("shows", "reason"),
    [
        (node(gpu(1)), "GpuMissing"),
        (seen(is_lost=True), "GpuLost"),
        (with_links_down(1), "NvLinksDown"),
        (seen(recovery_action=1), "ResetRequired"),
    ],
    ids=["missing", "lost", "links", "action"],
)
def test_what_later_scans_compare_with_is_not_forgotten(
    daemon: Daemon, shows: Snapshot, reason: str
) -> None:
    daemon.watch.look(shows, FINE)
    clear(daemon, A, shows=shows)
    assert daemon.reasons == {A: reason}


def test_a_gpu_that_was_replaced_is_cleared_by_its_old_uuid(daemon: Daemon) -> None:
    daemon.watch.look(seen(remapped_rows=FAILED), FINE)
    daemon.boot_id, daemon.now = "two", 10.0
    daemon.restart()
    new = node(replace(gpu(0), uuid="GPU-dddd"), gpu(1))
    daemon.watch.look(new, FINE)
    assert daemon.reasons == {A: "RowRemapFailed"}
    (listed,) = clear(daemon, "GPU0", shows=new)  # the GPU that has the index now
    assert (listed.uuid, listed.faults) == ("GPU-dddd", ())
    clear(daemon, A, shows=new, is_confirmed=True)
    assert daemon.reasons == {}


def test_a_flapping_gpu_begins_to_count_again(daemon: Daemon) -> None:
    for _ in range(3):
        daemon.watch.look(seen(is_lost=True), FINE)
        for _ in range(2):
            daemon.now += 61
            daemon.watch.look(SOUND, FINE)
    assert daemon.reasons == {A: "Flapping"}
    clear(daemon, "GPU0")
    assert daemon.reasons == {}
    daemon.watch.look(seen(is_lost=True), FINE)
    assert daemon.reasons == {A: "GpuLost"}


def test_a_dry_run_answers_and_changes_nothing(daemon: Daemon) -> None:
    daemon.watch.take_events([xid(79)])
    told(daemon)
    (cleared,) = clear(daemon, "GPU0", is_dry_run=True)
    assert ([fault.reason for fault in cleared.faults], cleared.left) == (["Xid79"], ())
    assert cleared.is_healthy
    assert (daemon.reasons, told(daemon)) == ({A: "Xid79"}, [])


@pytest.mark.parametrize("name", ["0", "GPU0", "gpu0", A, "GPU-AAAA", "10:00.0", "0000:10:00.0"])
def test_a_gpu_has_several_names(daemon: Daemon, name: str) -> None:
    daemon.watch.take_events([xid(79)])
    assert [gpu.uuid for gpu in clear(daemon, name)] == [A]


def test_a_gpu_named_twice_is_cleared_once(daemon: Daemon) -> None:
    daemon.watch.take_events([xid(79)])
    assert len(clear(daemon, "0", "GPU0", A)) == 1


def _uuids(*uuids: str) -> Snapshot:
    return node(*(replace(gpu(at), uuid=uuid) for at, uuid in enumerate(uuids)))


def test_the_beginning_of_a_uuid_names_one_gpu_or_none(daemon: Daemon) -> None:
    two = _uuids("GPU-12345678-1", "GPU-12345678-2")
    daemon = Daemon()
    (cleared,) = clear(daemon, "GPU-12345678-2", shows=two)
    assert cleared.uuid == "GPU-12345678-2"
    with pytest.raises(InputError, match="may be any of GPU-12345678-1, GPU-12345678-2"):
        clear(daemon, "GPU-1234", shows=two)
    with pytest.raises(InputError, match="unknown GPU 'GPU-1'"):
        clear(daemon, "GPU-1", shows=two)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("GPU9",), "unknown GPU 'GPU9' — did you mean 'GPU1'? known are: GPU0, GPU1"),
        (("GPU0", "mlx5_0"), "unknown GPU 'mlx5_0' — known are: GPU0, GPU1"),
        (("MIG-1",), "'MIG-1' is a MIG device — name its GPU: health is a GPU's"),
        (
            ("all",),
            (
                "all clears the verdicts on every GPU of the node — "
                "look first with --dry-run, or confirm with --yes"
            ),
        ),
    ],
)
def test_a_request_that_names_no_gpu_clears_none(
    daemon: Daemon, names: tuple[str, ...], says: str
) -> None:
    daemon.watch.take_events([xid(79)])
    with pytest.raises(InputError) as caught:
        clear(daemon, *names)
    assert (str(caught.value), daemon.reasons) == (says, {A: "Xid79"})


def test_all_are_those_with_a_verdict(daemon: Daemon) -> None:
    daemon.watch.take_events([xid(79, on=B)])
    assert [gpu.uuid for gpu in clear(daemon, "all", is_dry_run=True)] == [B]
    assert [gpu.uuid for gpu in clear(daemon, "all", is_confirmed=True)] == [B]
    assert daemon.reasons == {}


def test_a_gpu_that_is_due_for_replacement_needs_a_confirmation(daemon: Daemon) -> None:
    broken = seen(remapped_rows=FAILED)
    daemon.watch.look(broken, FINE)
    with pytest.raises(InputError, match=r"due for replacement: .* confirm with --yes"):
        clear(daemon, "GPU0")
    assert daemon.reasons == {A: "RowRemapFailed"}
    clear(daemon, "GPU0", is_confirmed=True)
    assert daemon.reasons == {}


def test_without_a_reading_of_nvml_nothing_is_cleared(daemon: Daemon) -> None:
    daemon.watch.take_events([xid(79)])
    with pytest.raises(UnreadableError, match=r"NVML said so.*nothing was cleared"):
        clear(daemon, "GPU0", nvml=trouble(NvmlTrouble.REFUSED))
    assert daemon.reasons == {A: "Xid79"}


def test_a_scan_that_began_before_the_request_does_not_answer_it(daemon: Daemon) -> None:
    daemon.watch.take_events([xid(79)])
    request = ClearRequest(gpus=("GPU0",))

    def scan() -> None:
        daemon.watch.look(SOUND, FINE, began=daemon.now - 1)

    with pytest.raises(UnreadableError, match="no scan of the node ended within 0 s"):
        daemon.watch.clear(request, scan, patience_s=0)
    daemon.now += 1
    daemon.watch.look(SOUND, FINE)  # withdrawn: it does not count later either
    assert daemon.reasons == {A: "Xid79"}


def test_a_restart_between_request_and_scan_forgets_the_request(daemon: Daemon) -> None:
    daemon.watch.take_events([xid(79)])
    daemon.wait(1)
    asked = threading.Event()
    results: list[AgentError] = []

    def ask() -> None:
        try:
            daemon.watch.clear(ClearRequest(gpus=("GPU0",)), asked.set, patience_s=0.01)
        except AgentError as error:
            results.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    asked.wait()
    daemon.restart()
    daemon.watch.look(SOUND, FINE)
    thread.join()
    assert (daemon.reasons, len(results)) == ({A: "Xid79"}, 1)


@pytest.mark.parametrize("is_writable", [True, False])
def test_the_answer_says_whether_a_restart_keeps_it(tmp_path: Path, *, is_writable: bool) -> None:
    place = tmp_path / "place"
    daemon = Daemon(place / "health.json")
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(79)])
    daemon.wait(1)
    if not is_writable:
        place.rename(tmp_path / "away")
        place.write_text("")
    daemon.now += 1
    with capture_logs():
        _, is_saved = daemon.watch.clear(
            ClearRequest(gpus=("0",)), lambda: daemon.watch.look(SOUND, FINE), patience_s=0
        )
    assert (daemon.reasons, is_saved) == ({}, is_writable)


def test_two_daemons_that_clear_together_leave_one_file_without_the_verdict(
    daemon: Daemon,
) -> None:
    daemon.watch.take_events([xid(79)])
    daemon.wait(1)
    other = Daemon(daemon.path, now=daemon.now)
    other.watch.look(SOUND, FINE)
    for one in (daemon, other):
        clear(one, "GPU0")
        told(one)
    for one in (daemon, other):
        one.watch.look(SOUND, FINE)
        assert (one.reasons, told(one)) == ({}, [])
    assert daemon.path is not None
    assert not any(it.faults for it in decode(daemon.path.read_text()).gpus.values())
