"""Children that are not gone yet when nobody asks for them any more."""

import subprocess
import threading

import pytest

from nodetopo.errors import NvmlUnavailable
from nodetopo.probes.nvml.supervisor import NvmlSupervisor, _Child
from tests.deviceplugin.eventually import eventually
from tests.fake_nvml.fake import FakeNvml
from tests.probes.conftest import PATIENCE_S, Supervise
from tests.probes.nvml.nvml_pair import READING


def test_a_child_that_outlives_close_is_freed_when_it_ends(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml_fake.fail()
    supervisor = nvml_supervise()
    assert supervisor.scan() == READING
    child = supervisor._child
    assert child is not None
    with monkeypatch.context() as unkillable:
        unkillable.setattr(subprocess.Popen, "send_signal", lambda *_: None)
        unkillable.setattr(_Child, "end_input", lambda _: None)
        supervisor.close()
        assert child._process.poll() is None
    child.kill()
    assert eventually(lambda: _is_freed(child), PATIENCE_S)


def test_a_child_that_a_scan_leaves_after_close_is_freed_when_it_ends(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = nvml_supervise()
    assert supervisor.scan() == READING
    child = supervisor._child
    assert child is not None
    nvml_fake.fail("hang nvmlDeviceGetName")
    with monkeypatch.context() as unkillable:
        unkillable.setattr(subprocess.Popen, "send_signal", lambda *_: None)
        unkillable.setattr(_Child, "end_input", lambda _: None)
        unkillable.setattr(supervisor, "_timeout_s", 2.0)
        scan = threading.Thread(target=_fails, args=(supervisor,))
        scan.start()
        assert eventually(supervisor._lock.locked)
        supervisor.close()
        scan.join(PATIENCE_S)
        assert child._process.poll() is None
    child.kill()
    assert eventually(lambda: _is_freed(child), PATIENCE_S)


def _fails(supervisor: NvmlSupervisor) -> None:
    with pytest.raises(NvmlUnavailable):
        supervisor.scan()


def _is_freed(child: _Child) -> bool:
    process = child._process
    pipes = (process.stdin, process.stdout)
    return process.returncode is not None and all(pipe is None or pipe.closed for pipe in pipes)
