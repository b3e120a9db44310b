"""GPU Feature Discovery on a simulated machine, and what we make of the same machine."""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from nodetopo.components.labels.catalogue import labels
from nodetopo.tools.capture.archive import unpack
from tests.fake_nvml.build import NAME, library
from tests.fake_nvml.fake import FakeNvml
from tests.lab.go_program import user_cache
from tests.lab.namespace import required_flags
from tests.lab.nvidia.build import DISCOVERY, programs
from tests.lab.nvidia.gfd_cases import Case
from tests.machines.pipeline import scan

_TIMEOUT_S = 300
_CPUS = "sys/devices/system/cpu"
_NOT_NVIDIA = "0x8086\n"
_SIX_EMPTY_REGIONS = "0x0 0x0 0x0\n" * 6

Labels = Mapping[str, str]


class Bench:
    """The machine of *case* below *home*."""

    def __init__(self, home: Path, case: Case) -> None:
        self._home = home
        self._case = case
        self._host = home / "host"
        layout = case.layout()
        unpack(_without_cpus(layout.files.read_text("utf-8")), self._host)
        _complete(self._host)
        case.edit(self._host)
        self._nvml = FakeNvml(home, layout.nvml)
        self._nvml.fail(*case.faults)

    def gfd(self, *flags: str) -> Labels | None:
        """Return GFD's labels; ``None`` where it ends with an error and writes none."""
        config = self._home / "config.yaml"
        config.write_text(self._case.config, "utf-8")
        output = self._home / "gfd"
        output.unlink(missing_ok=True)
        command = [*self._entering(), str(programs() / DISCOVERY), f"--config-file={config}"]
        command += ["--oneshot", "--use-node-feature-api=false", *flags]
        command += [f"--output-file={output}"]
        done = subprocess.run(
            command, env=self._environment(), capture_output=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode:
            return None
        return dict(line.split("=", 1) for line in output.read_text("utf-8").splitlines())

    def ours(self) -> Labels:
        """Return our labels in NVIDIA's domain."""
        place = library(user_cache()) / NAME
        snapshot = scan(self._home, self._host, place, node="bench")
        found = labels(snapshot, self._case.rules)
        return {key: value for key, value in found.items() if key.startswith("nvidia.com/")}

    def _environment(self) -> dict[str, str]:
        places = {"NODETOPO_FAKE_NVML": str(self._home), "LD_LIBRARY_PATH": _library()}
        return {**os.environ, **places}

    def _entering(self) -> tuple[str, ...]:
        """Return the command prefix that shows it the machine's sysfs at the real place."""
        flags = required_flags()
        bind = f"mount --rbind {shlex.quote(str(self._host / 'sys'))} /sys"
        return ("unshare", *flags, "sh", "-c", f'set -e\n{bind}\nexec "$@"', "lab")


def _library() -> str:
    return str(library(user_cache()))


def _without_cpus(archive: str) -> str:
    """Return *archive* without the directories of CPUs: thousands of files, and no label's."""
    head, *directories = re.split(r"(?m)^(?=[^\s#])", archive)
    return head + "".join(one for one in directories if not one.startswith(_CPUS))


def _complete(host: Path) -> None:
    """Add what GFD reads of every PCI function: the list of its memory regions, and its vendor.

    A capture has no more than the class of a function that is neither GPU nor HCA nor bridge.
    """
    for function in (host / "sys/bus/pci/devices").iterdir():
        (function / "resource").write_text(_SIX_EMPTY_REGIONS, "ascii")
        if not (function / "vendor").exists():
            (function / "vendor").write_text(_NOT_NVIDIA, "ascii")
