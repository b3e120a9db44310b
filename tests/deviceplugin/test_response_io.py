"""Allocate answers from memory: no file, socket or process is touched, whatever the strategy."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

WATCHED = """
import json, os, sys
from itertools import combinations
from pathlib import Path

import structlog

from nodetopo.deviceplugin.response import GpuAnswers
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.service import PluginServicer
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.settings import Deadlines, Feature, PluginSettings, Strategy

structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
seen, is_watching = [], False

def watch(event, arguments):
    # Code objects, garbage and threads are the process's own affair; all else leaves it.
    inside = ("code.", "object.", "gc.", "sys._getframe", "_thread.")
    if is_watching and not event.startswith(inside):
        seen.append(event)

def watched(name, call):
    # A look at a file is no audit event.
    def instead(*arguments, **named):
        if is_watching:
            seen.append(f"os.{name}")
        return call(*arguments, **named)
    return instead

sys.addaudithook(watch)
for name in ("stat", "lstat", "access", "readlink"):
    setattr(os, name, watched(name, getattr(os, name)))
devices = tuple(PluginDevice(id=f"GPU-{n}", minor=n) for n in range(8))
ANSWERED = [word for word in Strategy if word is not Strategy.AUTO]
choices = [found for size in range(1, 6) for found in combinations(ANSWERED, size)]
servicers = []
for strategies in choices:
    settings = PluginSettings(
        strategies=strategies,
        imex_channels=(0,),
        features=frozenset(Feature),
        nccl_hints=Path("/run/nccl"),
        host_root=Path(sys.argv[1]),
    )
    log = structlog.get_logger()
    answers = GpuAnswers(settings)
    servicer = PluginServicer("nvidia.com/gpu", lambda *_: (), answers, log, Deadlines())
    servicer.update(devices)
    servicers.append(servicer)
request = pb.AllocateRequest(
    container_requests=[pb.ContainerAllocateRequest(devices_ids=["GPU-1", "GPU-5"])]
)
is_watching = True
answers = [servicer.Allocate(request, None) for servicer in servicers]
%s
is_watching = False
channels = sum("channel0" in str(answer) or "imex" in str(answer).lower() for answer in answers)
print(json.dumps([channels, sorted(set(seen))]))
for servicer in servicers:
    servicer.close()
"""


def watched(host: Path, extra: str) -> tuple[int, list[str]]:
    """Answer in a process of its own, for hooks cannot be removed; *extra* runs in it as well.

    Returns how many answers held the IMEX channel of *host*, and the audit events.
    """
    channel = host / "dev/nvidia-caps-imex-channels/channel0"
    channel.parent.mkdir(parents=True)
    channel.symlink_to("/dev/null")
    done = subprocess.run(
        [sys.executable, "-c", WATCHED % extra, str(host)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    channels, seen = json.loads(done.stdout)
    return channels, seen


def test_no_answer_touches_anything_under_any_mixture_of_strategies(tmp_path: Path) -> None:
    assert watched(tmp_path, "") == (31, [])


def test_the_watch_would_see_a_look_at_the_disk(tmp_path: Path) -> None:
    forget = "servicer._node_lookup_s = 0"
    look = f"{forget}; servicer.update(devices[1:])"
    _, seen = watched(tmp_path, f"{look}; open('/dev/null').close()")
    assert {"open", "os.stat"} <= {*seen}
