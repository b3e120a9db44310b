"""The child's protocol, spoken to it directly."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodetopo.model.plain import to_plain
from tests.fake_nvml.fake import FakeNvml
from tests.probes.nvml.nvml_pair import READING

ROOT = Path(__file__).parents[3]


@pytest.fixture
def nvml_child(nvml_fake: FakeNvml, nvml_library: Path) -> Iterator[subprocess.Popen[str]]:
    """A child on the pair of GPUs; a busy machine may take a while to let it end by itself."""
    assert nvml_fake.directory.exists()
    with _started(nvml_library, grace_s=60.0) as process:
        yield process


@contextmanager
def _started(directory: Path, grace_s: float) -> Iterator[subprocess.Popen[str]]:
    program = f"from nodetopo.probes.nvml import child as it; it.GRACE_S = {grace_s}; it.main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(directory / "libnvidia-ml.so.1"), ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        yield process
        process.kill()


def _ask(child: subprocess.Popen[str], request: str) -> Any:
    """Return the reply, the count of calls apart."""
    reply = _reply(child, request)
    reply.get("ok", {}).pop("calls", None)
    return reply


def _reply(child: subprocess.Popen[str], request: str) -> Any:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(request + "\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())


def test_a_scan_is_answered_with_the_reading(nvml_child: subprocess.Popen[str]) -> None:
    assert _ask(nvml_child, "scan") == {"ok": to_plain(READING)}


def test_a_refresh_gives_the_same_for_fewer_calls(
    nvml_child: subprocess.Popen[str],
    nvml_fake: FakeNvml,
) -> None:
    nvml_fake.fail()
    whole = _reply(nvml_child, "refresh")["ok"]  # the first one has nothing to start from
    periodic = _reply(nvml_child, "refresh")["ok"]
    assert whole.pop("calls") > 2 * periodic.pop("calls") > 0
    assert whole == periodic


def test_after_a_failure_a_refresh_reads_everything(
    nvml_child: subprocess.Popen[str],
    nvml_fake: FakeNvml,
) -> None:
    whole = _reply(nvml_child, "scan")["ok"]["calls"]
    nvml_fake.fail("code nvmlInitWithFlags 9")
    _reply(nvml_child, "refresh")
    nvml_fake.fail()
    assert _reply(nvml_child, "refresh")["ok"]["calls"] == whole


def test_a_record_holds_the_reading_and_its_answers(nvml_child: subprocess.Popen[str]) -> None:
    reply = _ask(nvml_child, "record")
    answers = reply["answers"].splitlines()
    assert reply["ok"] == to_plain(READING)
    assert {
        "nvmlDeviceGetCount_v2 = 0 2",
        "nvmlDeviceGetUUID 0:2 = 0 MIG-bbbb",
        "nvmlDeviceGetMigDeviceHandleByIndex 0 1 = 6",
        "nvmlDeviceGetCpuAffinity 0 = 0 0-2,64,127-128",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2 0 0 = 0 00000000:11:00.0 | 0x00000000",
    } <= set(answers)


def test_an_unknown_request_is_an_error(nvml_child: subprocess.Popen[str]) -> None:
    assert _ask(nvml_child, "dance")["error"]["cause"] == "unknown request 'dance'"


def test_every_scan_initialises_nvml_anew(
    nvml_child: subprocess.Popen[str],
    nvml_fake: FakeNvml,
) -> None:
    _ask(nvml_child, "scan")
    nvml_fake.answer("nvmlDeviceGetCount_v2 = 0 0\n")
    assert _ask(nvml_child, "scan") == {"ok": {"nvlinks": []}}


def test_a_failure_is_answered_with_its_cause_and_cure(
    nvml_child: subprocess.Popen[str],
    nvml_fake: FakeNvml,
) -> None:
    nvml_fake.fail("code nvmlInitWithFlags 18")
    assert _ask(nvml_child, "scan") == {
        "error": {
            "cause": ("NVML does not initialise: RM has detected an NVML/RM version mismatch."),
            "cure": "the driver was replaced while its kernel module runs: "
            "reload the module, or reboot",
            "code": 18,
        },
    }


def test_what_the_driver_prints_does_not_reach_the_protocol(
    nvml_child: subprocess.Popen[str],
    nvml_fake: FakeNvml,
) -> None:
    nvml_fake.fail("noise hello from the driver")
    answer = _ask(nvml_child, "scan")
    _, chatter = nvml_child.communicate(timeout=60)
    assert (answer, chatter) == ({"ok": to_plain(READING)}, "hello from the driver\n")


def test_it_ends_with_its_input(nvml_child: subprocess.Popen[str]) -> None:
    nvml_child.communicate(timeout=60)
    assert nvml_child.returncode == 0


def test_it_ends_with_its_input_even_while_a_call_hangs(
    nvml_fake: FakeNvml, nvml_library: Path
) -> None:
    nvml_fake.fail("hang nvmlDeviceGetName")
    with _started(nvml_library, grace_s=0.1) as child:
        child.communicate("scan\n", timeout=60)
    assert child.returncode == 1
