"""What the process that calls NVML inherits."""

import os

import pytest

from nodetopo.probes.nvml.launch import child_environment


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "LD_AUDIT",
        "LD_DEBUG_OUTPUT",
        "LD_PROFILE_OUTPUT",
        "LD_BIND_NOT",
        "GLIBC_TUNABLES",
        "GCONV_PATH",
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "PYTHONINSPECT",
        "PYTHONWARNINGS",
    ],
)
def test_what_could_run_other_code_is_not_inherited(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "/tmp/evil")
    assert name not in child_environment()


def test_the_path_of_modules_is_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/tmp/evil")
    assert "/tmp/evil" not in child_environment()["PYTHONPATH"].split(os.pathsep)


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "PATH", "NVIDIA_VISIBLE_DEVICES"])
def test_what_finds_the_driver_is_inherited(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/usr/local/nvidia/lib64")
    assert child_environment()[name] == "/usr/local/nvidia/lib64"
