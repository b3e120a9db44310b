"""The child's protocol, spoken to it directly."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.model.codec import to_plain
from tests.fake_nvml.fake import FakeNvml
from tests.probes.nvml_pair import READING

ROOT = Path(__file__).parents[2]


@pytest.fixture
def nvml_child(nvml_fake: FakeNvml, nvml_library: Path) -> Iterator[subprocess.Popen[str]]:
    """A child on the pair of GPUs."""
    assert nvml_fake.directory.exists()
    library = nvml_library / "libnvidia-ml.so.1"
    with subprocess.Popen(
        [sys.executable, "-m", "agent.probes.nvml_child", str(library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        yield process
        process.kill()


def _ask(child: subprocess.Popen[str], request: str) -> object:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(request + "\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())


def test_a_scan_is_answered_with_the_reading(nvml_child: subprocess.Popen[str]) -> None:
    assert _ask(nvml_child, "scan") == {"ok": to_plain(READING)}


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
    nvml_child: subprocess.Popen[str],
    nvml_fake: FakeNvml,
) -> None:
    nvml_fake.fail("hang nvmlDeviceGetName")
    nvml_child.communicate("scan\n", timeout=60)
    assert nvml_child.returncode == 1
