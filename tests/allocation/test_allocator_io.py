"""An answer comes from memory: no file, library, socket or process is touched for it."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

WATCHED = """
import json, sys

from nodetopo.allocation.allocator import Allocator, preferred
from nodetopo.allocation.shared.allocator import SharedAllocator
from nodetopo.machines.bundled import machine

seen, is_watching = [], False

def watch(event, arguments):
    # Code objects and garbage are the interpreter's own affair; all else leaves the process.
    if is_watching and not event.startswith(("code.", "object.", "gc.", "sys._getframe")):
        seen.append(event)

sys.addaudithook(watch)
allocators = []
for name in ("dgx-1v", "dgx-h100", "dgx-2", "rtxpro6000-pcie-8"):
    snapshot = machine(name)
    ids = [gpu.id for gpu in snapshot.gpus]
    allocators.append((Allocator(snapshot), ids))
    owner = {f"{one}::{n}": one for one in ids for n in range(4)}
    allocators.append((SharedAllocator(snapshot, owner, spread=True), list(owner)))
is_watching = True
answers = 0
for allocator, ids in allocators:
    for size in range(1, 9):
        answers += len(allocator.best(ids, ids[:1], size))
        answers += len(preferred(allocator, [*ids[1:], "unknown"], ["unknown"], size))
        answers += len(allocator.allocate(available=ids, size=size).chosen)
%s
is_watching = False
libraries = [name for name in ("pynvml", "ctypes", "_ctypes") if name in sys.modules]
print(json.dumps([answers, sorted(set(seen)), libraries]))
"""


def watched(extra: str) -> tuple[int, list[str], list[str]]:
    """Answer in a process of its own, for hooks cannot be removed; *extra* runs in it as well.

    Returns the number of GPUs answered, the audit events, and the libraries loaded for NVML.
    """
    done = subprocess.run(
        [sys.executable, "-c", WATCHED % extra],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answers, seen, libraries = json.loads(done.stdout)
    return answers, seen, libraries


def test_no_answer_opens_a_file_or_calls_a_library() -> None:
    asked = 8 * 3 * sum(range(1, 9))
    assert watched("") == (asked, [], [])


def test_the_watch_would_see_a_file_and_a_library() -> None:
    _, seen, libraries = watched("open('/dev/null').close(); import ctypes; ctypes.CDLL(None)")
    assert {"open", "ctypes.dlopen"} <= {*seen}
    assert libraries == ["ctypes", "_ctypes"]
