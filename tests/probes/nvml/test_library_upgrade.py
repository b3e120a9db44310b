"""A library that is replaced, or comes later, is loaded without a restart of the agent."""

import shutil
import subprocess
from pathlib import Path

from nodetopo.model.nvml_event import NvmlTrouble
from tests.deviceplugin.eventually import eventually
from tests.fake_nvml.build import NAME, c_compiler
from tests.fake_nvml.fake import FakeNvml
from tests.probes.clock import Clock
from tests.probes.conftest import Supervise
from tests.probes.nvml.event_log import EventLog, xid
from tests.probes.nvml.failing_scan import fails
from tests.probes.nvml.nvml_pair import READING

GPU0 = "GPU-00000000"
PATIENCE_S = 60.0


def _version_mismatch(directory: Path) -> None:
    """Make a library of another version than the driver, as one that is left by an upgrade."""
    directory.mkdir()
    source = directory / "old.c"
    source.write_text(
        "int nvmlInitWithFlags(unsigned flags) { return flags ? 2 : 18; }\n"
        'const char *nvmlErrorString(int code) { return code == 18 ? "mismatch" : "other"; }\n'
    )
    command = [*c_compiler(), "-shared", "-fPIC", f"-Wl,-soname,{NAME}", str(source)]
    subprocess.run([*command, "-o", str(directory / NAME)], check=True, timeout=240)


def test_a_library_replaced_after_an_upgrade_is_loaded_without_a_restart(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, nvml_library: Path, tmp_path: Path
) -> None:
    clock, log = Clock(), EventLog()
    directory = tmp_path / "driver"
    _version_mismatch(directory)
    supervisor = nvml_supervise(directory, clock=clock, on_events=log)
    assert (fails(supervisor).code, fails(supervisor).failures) == (18, 1)
    fresh = directory / "fresh"
    shutil.copy(nvml_library / NAME, fresh)
    fresh.replace(directory / NAME)
    clock.now += 60.0
    assert supervisor.scan() == READING
    assert eventually(lambda: len(nvml_fake.registered) == 2, PATIENCE_S)
    nvml_fake.xid(0, 79)
    assert log.heard({xid(GPU0, 79): 1})


def test_a_library_that_appears_later_gives_readings_and_events_without_a_restart(
    nvml_fake: FakeNvml, nvml_supervise: Supervise, nvml_library: Path, tmp_path: Path
) -> None:
    log = EventLog()
    directory = tmp_path / "driver"
    supervisor = nvml_supervise(directory, on_events=log)
    for failures in (1, 2, 3):
        found = fails(supervisor)
        assert (found.trouble, found.failures) == (NvmlTrouble.NO_LIBRARY, failures)
    shutil.copytree(nvml_library, directory)
    assert supervisor.scan() == READING
    assert eventually(lambda: len(nvml_fake.registered) == 2, PATIENCE_S)
    nvml_fake.xid(0, 79)
    assert log.heard({xid(GPU0, 79): 1})
