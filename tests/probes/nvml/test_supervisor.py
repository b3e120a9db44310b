"""The parent's side: what happens when the child hangs, dies, or cannot load the library."""

import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from nodetopo.errors import NvmlUnavailable
from nodetopo.probes.nvml.supervisor import NvmlSupervisor, _Child
from tests.deviceplugin.eventually import eventually
from tests.fake_nvml.fake import FakeNvml
from tests.probes.clock import Clock
from tests.probes.conftest import PATIENCE_S, Supervise
from tests.probes.nvml.nvml_pair import READING


def _failure(supervisor: NvmlSupervisor) -> NvmlUnavailable:
    with pytest.raises(NvmlUnavailable) as caught:
        supervisor.scan()
    return caught.value


def _cause(supervisor: NvmlSupervisor) -> str:
    return _failure(supervisor).cause


def _child_pid(supervisor: NvmlSupervisor) -> int:
    child = supervisor._child or supervisor._left[-1]
    return child.pid


def test_a_hanging_driver_is_unavailable_after_the_timeout(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.fail("hang nvmlDeviceGetName")
    assert _cause(nvml_supervise(timeout_s=1.0)) == "NVML did not answer within 1 s"


def test_after_a_hang_a_new_child_reads_again(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    nvml_fake.fail("hang nvmlDeviceGetName")
    supervisor = nvml_supervise(timeout_s=1.0, clock=clock)
    _cause(supervisor)
    nvml_fake.fail()
    clock.now += 1.0
    monkeypatch.setattr(supervisor, "_timeout_s", 60.0)  # a busy machine starts it in seconds
    assert supervisor.scan() == READING


def test_no_second_child_is_started_while_one_is_stuck(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    nvml_fake.fail("hang nvmlDeviceGetName")
    supervisor = nvml_supervise(timeout_s=1.0, clock=clock)
    with monkeypatch.context() as unkillable:  # as in uninterruptible sleep: signals do nothing
        unkillable.setattr(subprocess.Popen, "send_signal", lambda *_: None)
        unkillable.setattr(_Child, "end_input", lambda _: None)  # nor does its end
        _cause(supervisor)
        pid = _child_pid(supervisor)
        clock.now += 3600.0
        assert _cause(supervisor) == f"a call is stuck in the NVIDIA driver (process {pid})"


def test_waits_between_attempts_double_up_to_a_minute(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    clock = Clock()
    nvml_fake.fail("code nvmlInitWithFlags 9")
    supervisor = nvml_supervise(clock=clock)
    waits = []
    for _ in range(8):
        assert _cause(supervisor) == "NVML does not initialise: Driver Not Loaded"
        waiting = _failure(supervisor)
        # The cause goes into snapshots: counting down there would make each one a change.
        assert waiting.cause == "NVML does not initialise: Driver Not Loaded"
        waits.append(waiting.cure.rpartition("next attempt in ")[2])
        clock.now += 60.0
    assert waits == ["1 s", "2 s", "4 s", "8 s", "16 s", "32 s", "60 s", "60 s"]


def test_a_driver_that_comes_back_is_read_and_the_wait_starts_over(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    clock = Clock()
    supervisor = nvml_supervise(clock=clock)
    for _ in range(2):
        nvml_fake.fail("code nvmlInitWithFlags 18")
        _cause(supervisor)
        clock.now += 1.0
        nvml_fake.fail()
        assert supervisor.scan() == READING


def test_a_child_killed_between_scans_is_replaced_unnoticed(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.fail()
    supervisor = nvml_supervise()
    supervisor.scan()
    pid = _child_pid(supervisor)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert supervisor.scan() == READING


def test_a_child_that_dies_during_a_scan_says_how(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    nvml_fake.fail("crash nvmlDeviceGetName")
    assert _cause(nvml_supervise()) == "the NVML process was killed by signal 9"


def test_after_a_death_during_a_scan_a_new_child_reads_again(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
) -> None:
    clock = Clock()
    nvml_fake.fail("crash nvmlDeviceGetName")
    supervisor = nvml_supervise(clock=clock)
    _cause(supervisor)
    nvml_fake.fail()
    clock.now += 1.0
    assert supervisor.scan() == READING


@pytest.mark.usefixtures("nvml_fake")
def test_one_child_serves_many_scans(nvml_supervise: Supervise) -> None:
    supervisor = nvml_supervise()
    supervisor.scan()
    first = _child_pid(supervisor)
    supervisor.scan()
    assert _child_pid(supervisor) == first


@pytest.mark.usefixtures("nvml_fake")
def test_a_new_child_reads_everything_when_asked_to_refresh(nvml_supervise: Supervise) -> None:
    supervisor = nvml_supervise()
    whole = supervisor.scan()
    periodic = supervisor.refresh()
    pid = _child_pid(supervisor)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    again = supervisor.refresh()
    assert whole == periodic == again
    assert whole.calls == again.calls > periodic.calls


@pytest.mark.usefixtures("nvml_fake")
def test_a_recording_is_made_on_request_only(nvml_supervise: Supervise) -> None:
    supervisor = nvml_supervise()
    recording = supervisor.record()
    assert recording == READING
    assert "nvmlDeviceGetUUID 0 = 0 GPU-00000000" in recording.answers


def test_a_child_that_cannot_be_started_is_unavailable_and_left_alone_for_a_while(
    nvml_supervise: Supervise,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "no-python"))
    supervisor = nvml_supervise()
    expected = "cannot start the process that reads NVML: No such file or directory"
    assert _cause(supervisor) == expected
    assert "next attempt in" in _failure(supervisor).cure


def test_a_missing_library_is_named(nvml_supervise: Supervise, tmp_path: Path) -> None:
    with pytest.raises(NvmlUnavailable) as caught:
        nvml_supervise(tmp_path).scan()
    assert str(caught.value) == (
        f"cannot load libnvidia-ml.so.1 from {tmp_path}: no such file — "
        "name the driver's library, or its directory, with --nvml-library"
    )


def test_a_library_that_cannot_be_reached_is_named(
    nvml_supervise: Supervise, tmp_path: Path
) -> None:
    missing = tmp_path / ("x" * 300)  # NAME_MAX of Linux is 255
    expected = f"cannot load libnvidia-ml.so.1 from {missing}: File name too long"
    assert _cause(nvml_supervise(missing)) == expected


def test_a_library_that_appears_later_is_found_at_once(
    nvml_fake: FakeNvml,
    nvml_supervise: Supervise,
    nvml_library: Path,
    tmp_path: Path,
) -> None:
    nvml_fake.fail()
    directory = tmp_path / "driver"
    supervisor = nvml_supervise(directory)
    _cause(supervisor)
    shutil.copytree(nvml_library, directory)
    assert supervisor.scan() == READING


def test_a_file_that_is_no_library_is_refused_in_the_loaders_words(
    nvml_supervise: Supervise,
    tmp_path: Path,
) -> None:
    broken = tmp_path / "libnvidia-ml.so.1"
    broken.write_text("not a library")
    assert _cause(nvml_supervise(broken)) == (
        f"cannot load libnvidia-ml.so.1 from {broken}: {broken}: file too short"
    )


@pytest.mark.usefixtures("nvml_fake")
def test_the_library_file_may_have_any_name(
    nvml_supervise: Supervise,
    nvml_library: Path,
    tmp_path: Path,
) -> None:
    versioned = tmp_path / "libnvidia-ml.so.580.95.05"
    shutil.copy(nvml_library / "libnvidia-ml.so.1", versioned)
    assert nvml_supervise(versioned).scan() == READING


@pytest.mark.usefixtures("nvml_fake")
def test_the_child_finds_its_code_wherever_the_parent_runs(
    nvml_supervise: Supervise,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "nodetopo.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONSTARTUP", "/nowhere")
    monkeypatch.setenv("LD_PRELOAD", "/nowhere.so")
    assert nvml_supervise().scan() == READING


def test_close_ends_a_hanging_scan(nvml_fake: FakeNvml, nvml_supervise: Supervise) -> None:
    nvml_fake.fail("hang nvmlDeviceGetName")
    supervisor = nvml_supervise(timeout_s=120.0)
    causes: list[str] = []
    thread = threading.Thread(target=lambda: causes.append(_cause(supervisor)))
    thread.start()
    assert eventually(lambda: supervisor._child is not None)
    supervisor.close()
    thread.join(PATIENCE_S)
    (cause,) = causes  # it is killed, or notices first that its input has ended
    assert cause.startswith("the NVML process ")


def test_close_ends_the_child(nvml_fake: FakeNvml, nvml_supervise: Supervise) -> None:
    nvml_fake.fail()
    supervisor = nvml_supervise()
    supervisor.scan()
    child = supervisor._child
    assert child is not None
    supervisor.close()
    assert child.has_ended(PATIENCE_S)


@pytest.mark.usefixtures("nvml_fake")
def test_a_process_that_is_about_to_end_is_not_asked(
    nvml_supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = nvml_supervise()
    supervisor.scan()
    child = supervisor._child
    assert child is not None
    wait = child._process.wait

    def late(timeout: float | None = None) -> int:
        """Return what a kernel that has closed its files, and not yet ended it, would show."""
        if timeout == 0:
            raise subprocess.TimeoutExpired("child", 0)
        return wait(timeout)

    monkeypatch.setattr(child._process, "wait", late)
    child.kill()
    wait(PATIENCE_S)
    assert supervisor.refresh().gpus
    assert supervisor.status.failures == 0


@pytest.mark.usefixtures("nvml_fake")
def test_released_it_has_no_process_until_the_next_scan(nvml_supervise: Supervise) -> None:
    heard: list[object] = []
    supervisor = nvml_supervise(on_events=heard.extend)
    assert supervisor.scan() == READING
    child = _child_pid(supervisor)
    assert supervisor.release()
    assert not Path(f"/proc/{child}").exists()
    assert (supervisor._child, supervisor._left) == (None, [])
    assert supervisor.release()
    assert supervisor.status.failures == 0

    assert supervisor.scan() == READING
    assert _child_pid(supervisor) != child
    assert heard == []  # its end was wanted: no event was missed


@pytest.mark.usefixtures("nvml_fake")
def test_a_child_that_is_stuck_in_the_driver_is_not_released(
    nvml_supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = nvml_supervise()
    supervisor.scan()
    with monkeypatch.context() as unkillable:  # as in uninterruptible sleep: signals do nothing
        unkillable.setattr(subprocess.Popen, "send_signal", lambda *_: None)
        unkillable.setattr(_Child, "end_input", lambda _: None)
        assert not supervisor.release()
    assert supervisor.release()
