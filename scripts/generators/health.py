"""The documentation page of health, generated from the tables and the default rules."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nodetopo.components.gpus.health.recovery import ACTIONS, NONE
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.rdma.health.hca import HcaRules
from nodetopo.components.rdma.health.monitor import LOOK_S, PORTS_A_LOOK, SCAN_PAUSE_S
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.xid import CATALOGUE_URL, REPEATED, ROWS, TABLE, TABLE_VERSION, UNLISTED, Row
from nodetopo.tools.explain.words import HCA_HEALTH

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "health.md"

NVIDIA_IGNORES = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that NVIDIA's device plugin 0.17.1 to 0.20.0 ignores (its ``health.go``); every other one
makes the GPU Unhealthy there for as long as the plugin runs."""

_RULES = HealthRules()
_HCA_RULES = HcaRules()

_HCA_CAUSES = "| reason | meaning | what to do |\n| --- | --- | --- |\n" + "".join(
    f"| `{word.name}` | {word.meaning} | {word.cure} |\n" for word in HCA_HEALTH
)

_HEAD = f"""\
# Health of GPUs and HCAs

Generated from `agent/nodetopo/components/gpus/health/`.

A GPU is offered to the kubelet as Healthy or Unhealthy; all its replicas and MIG devices follow
it. Pods that run on an Unhealthy GPU go on running: the daemon kills, drains and resets nothing.
It says what it saw, and stops handing out what would fail. The verdict and its reason are in the
metrics and in Events; the kubelet passes on Healthy or Unhealthy, in `allocatedResourcesStatus` of
the pods on it (feature gate `ResourceHealthStatus`, on by default from Kubernetes 1.36).

With `cdi-spec: write`, a GPU that no CDI specification defines is Unhealthy for the kubelet, too,
whatever its health ([allocate.md](../reference/allocate.md#the-cdi-specification)).

## Sources

| source | tells |
| --- | --- |
| NVML events | XIDs, the error codes of the driver, within a second; not all of them: a GPU \
that is off the bus may send none, and some (79, 119, 120) are known not to arrive |
| each scan of NVML | which GPUs are lost, the driver's recovery action (field 230), memory rows \
and pages that wait for a reset or could not be replaced, whether the SRAM had more errors than \
NVIDIA's threshold for an RMA, how many NVLinks are up, how many lanes the PCIe link trained to |
| the PCI bus, each scan | GPUs that were there and are gone, whatever NVML says |
| how NVML fares | a call that does not return, a library that refuses everything |

## Classes

| class | the GPU is | until |
| --- | --- | --- |
| `app` | Healthy; the code is counted | |
| `degraded` | Healthy, given out only where no sound GPU is left | it looks sound and the error \
did not come again for {_RULES.degraded_s / 3600:g} h, or a reset was seen |
| `reset` | Unhealthy | it looks sound after a reset |
| `reboot` | Unhealthy | the node has booted |
| `rma` | Unhealthy | an operator clears it |

*Looks sound*: NVML answers for it, the driver asks for nothing, nothing waits for a reset, and as
many NVLinks are up as ever were in this boot (in MIG mode they do not count). A PCIe link with
fewer lanes than GPU and slot can do makes the GPU `degraded` (`PcieLanesMissing`, check PCI-001),
and keeps no other fault alive: it can last as long as the GPU is in its slot. The width, unlike the
generation, does not drop while a GPU idles; one that is not reported is no fault. What the driver
told holds while a call does not tell, as rows while MIG is on. *After a reset*: the driver says
that no recovery action is open, or a reset showed itself: an action that was open is not, rows that
waited wait no more, the count of errors since the driver was loaded became smaller. A driver that
does not know field 230 and shows none of these leaves the GPU Unhealthy until a reboot.

## The protocol

1. The same XID of the same GPU within {_RULES.dedupe_s:g} s is one occurrence; the counter has all.
2. The class comes from the table below, or from `xid-classes`. What the driver itself asks for
   outranks it: an open recovery action makes a GPU worse than the table says; that none is open
   ends a verdict of class `reset`, by the evidence above and no earlier. A reboot that the driver
   itself asked for is over when it asks no more; one that the table asks for, with a boot.
3. A GPU recovers by evidence that holds for `recovery`, {_RULES.recovery_s:g} s: one scan begins
   that time, and another one after it must still find the GPU sound. A new error begins it anew. A
   scan that began before an error proves nothing about it.
4. Application faults {" and ".join(f"{code}" for code in sorted(REPEATED))} that come
   {_RULES.repeats} times within {_RULES.degraded_s / 3600:g} h degrade the GPU: then it is seldom \
the application.
5. A GPU that turned Unhealthy {_RULES.flaps} times within {_RULES.flap_s / 3600:g} h stays so
   (`Flapping`) until the node boots or an operator clears it.
6. Verdicts survive a restart of the daemon, in `health-file`. Another boot ends all of them but
   `rma`. The default place is emptied by a boot.
7. An XID that NVML reports without a GPU counts for every GPU, as far as a look at each does not
   clear it, and makes none of them `Flapping`. Waiting for events may fail; that says nothing of
   any GPU.
8. A health file that was damaged while the daemon runs is written again from memory at the next
   scan. One that cannot be read at a start has lost its verdicts, nobody knows on which GPUs: every
   GPU is Unhealthy (`HealthNotKnown`) until it has looked sound for `recovery`. No scan could give
   the evidence that classes `reboot` and `rma` ask for; what is still wrong with such a GPU shows
   again, as a loss, a recovery action, a failed row remap or the next XID. The old content is kept
   in `health.json.bad`. A missing file is no damage: the daemon then forgets every verdict.

## Bring a GPU back

To end the verdict on one GPU, ask the daemon of its node. Other GPUs keep their verdicts:

```
kubectl nodetopo gpu-17 health --clear GPU3 --dry-run
kubectl nodetopo gpu-17 health --clear GPU3
```

On the node, or in the daemon's pod, the command is `nodetopo health --clear GPU3`. Name the GPU by
index, `GPU3`, UUID, the beginning of its UUID, or PCI address; `all` stands for every GPU with a
verdict.

The daemon scans the node and applies the request together with the scan. The command prints each
fault that it ended, each fault that the GPU still reports, and the result:

```
GPU3 (GPU-5a1e3c7e-52a8-4ed5-8c6c-f1d2b9b1a1c4):
  cleared: Xid79 (reboot): XID 79, the GPU fell off the bus; it needs a reboot of the node
  still reported: RowRemapFailed (rma): a memory row could not be remapped; it needs an operator
  is Unhealthy: a verdict on what the GPU reports returns at once
```

| condition | result |
| --- | --- |
| the GPU still reports the fault: a failed row remap, a recovery action, a lost GPU, \
fewer NVLinks | the verdict returns at once, and the exit status is 1. To use such a GPU all the \
same, set `health-checks: false` |
| the class is `rma`, or the name is `all` | the request needs `--yes` |
| NVML gives no reading, or the driver is paused | the request is refused, with exit status 3 |
| the health file can't be written | the GPU is back, with a warning: the verdict returns if the \
daemon restarts |
| two daemons run on the node, during a rollout | both apply the request; if one of them is of a \
release that takes no requests, the command refuses it |
| no daemon runs on the node | the command changes the health file, and says so |
| the daemon restarts before it answers | the request is lost and is not repeated |

Each clear is a line in the log and an Event `HealthCleared` with the faults. The daemon takes
requests on a socket in the directory of `health-file` that only root and its own user can reach;
the HTTP server takes none. With a daemon of an older release, remove its health file: that forgets
the verdicts on every GPU.

## When NVML fails as a whole

| what happens | GPUs | reason |
| --- | --- | --- |
| {_RULES.unanswered} scans in a row get no answer, or one call is stuck for \
{_RULES.unresponsive_s / 60:g} min: the driver hangs, and new work would | Unhealthy at once | \
`NvmlUnresponsive` |
| NVML refuses, with any code: mostly the daemon's container has lost its devices, after \
`systemctl daemon-reload` for one, while jobs run on | as they were for \
{_RULES.no_reading_s / 60:g} min, then Unhealthy | `NvmlRefuses` |
| the same while PCI shows GPUs, for {_RULES.fresh_after_s / 60:g} min, codes 9 (driver not \
loaded) and 18 excepted | as they were; the daemon asks for a fresh container, once in \
{_RULES.fresh_every_s / 3600:g} h at most, and only where the health file can be written | |
| code 18, kernel module and library of different versions: a driver upgrade is under way. Jobs \
run on with the library they have; new pods would fail | as they were for \
{_RULES.no_reading_s / 60:g} min, then Unhealthy; no restart | `NvmlVersionMismatch` |
| the library is gone, as while a driver container is replaced | the same | `NvmlLibraryGone` |
| the process that reads NVML dies | the same | `NvmlDied` |

All of these end {_RULES.back_s:g} s after NVML gives readings again. A node that never had a GPU
has none that could be Unhealthy.
"""

_TUNING = """\
## Tuning

| setting | does |
| --- | --- |
| `health-checks: false` | no verdicts at all: only lost GPUs are Unhealthy |
| `xid-classes: "74=degraded,92=app"` | another class for single codes; `app` ignores one, \
repeated or not |
| `recovery: 5m` | longer evidence before a GPU is handed out again |
| `health-file: /var/lib/nodetopo/health.json` | a place that a boot does not empty: `rma` \
verdicts then outlive it |

`DP_DISABLE_HEALTHCHECKS` and `DP_ENABLE_HEALTHCHECKS` of NVIDIA's plugin are understood; see
[configuration.md](configuration.md).
"""

_DIFFERENCES = """\
## Differences to NVIDIA's device plugin

NVIDIA's plugin (0.17.1 to 0.20.0) ignores six XIDs and takes every other one as a reason to make
the GPU Unhealthy, without a way back but its own restart, which forgets everything.

- **Healthy here, Unhealthy there**: {app} (`app`), and {degraded} (`degraded`).
- **Watched here, ignored there**: {watched}.
- Codes in neither table: `{unlisted}` here, Unhealthy there.
- Lost GPUs, recovery actions, failed row remaps and a driver that hangs are seen here without an
  XID.
- All replicas of a shared GPU follow it; there, up to 0.20.0, one of them does.
- An error while waiting for events makes no GPU Unhealthy; there it makes all of them so.
"""


_HOLDS = ", ".join(f"{_HCA_RULES.hold_s(falls):g}" for falls in range(1, 8))

_HCAS = f"""\
## HCAs

While HCAs are offered (`rdma-config`), each is Healthy as long as one of its ports is ACTIVE. The
states of the ports are read every {LOOK_S:g} s, of more than {PORTS_A_LOOK} ports less often; \
`health-checks`
switches this off, too.

1. A fault counts once it has lasted for {_HCA_RULES.confirm_s:g} s, over two readings at least: \
a port that goes
   down is out of the device list within ten seconds, a link that trains anew stays in it.
2. An HCA that is down when the daemon starts is Unhealthy at once.
3. A state that cannot be read keeps the verdict, as with EINVAL, which drivers answer for functions
   that are restricted. A file that was refused is not read again before RDMA devices come or go.
4. An HCA is Healthy again once it has been up for `recovery`. With the third fall within an hour
   that time begins to double: {_HOLDS} s. So it changes no more
   than fourteen times an hour, and with each change the kubelet writes its checkpoint.
5. Devices of a pool in mode `shared` stand for all of its HCAs: containers get the healthy ones,
   and devices are Unhealthy once no HCA is left.
6. An HCA that is gone stays in the capacity, under its id. One that was renamed is the same HCA,
   since its PCI function identifies it. RDMA devices that come, go or change their names ask for a
   scan, once in {SCAN_PAUSE_S:g} s at most.
7. HCAs and verdicts survive a restart of the daemon in the same boot, in `hcas.json` beside
   `health-file`: an Unhealthy HCA stays so until it has been up for its whole time once more,
   falls keep counting, a renamed HCA keeps its id, and one that is gone stays in the capacity. An
   HCA that went down meanwhile is Unhealthy at once. Another boot begins anew. Without a usable
   file, or with one whose schema another release wrote, the ports alone say how HCAs are, and the
   file is written anew; a release that does not know the file leaves it alone.

{_HCA_CAUSES}"""


def page() -> str:
    """Return the whole page as Markdown."""
    parts = (_HEAD, _actions(), _xids(), _TUNING, _HCAS, _differences())
    return "\n".join(parts)


def _actions() -> str:
    lines = [
        "## Recovery actions",
        "",
        "What field 230 may hold (`nvmlDeviceGpuRecoveryAction_t`). An action that is not here",
        "degrades the GPU.",
        "",
        "| number | the driver asks | class | reason |",
        "| --- | --- | --- | --- |",
        f"| {NONE} | for nothing | | |",
        *(
            f"| {action.number} | {action.said} | `{action.kind}` | `{action.reason}` |"
            for action in ACTIONS.values()
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


def _xids() -> str:
    return "".join(f"{line}\n" for line in _xid_lines())


def _xid_lines() -> Iterator[str]:
    yield "## XIDs"
    yield ""
    yield f"Edition {TABLE_VERSION} of [NVIDIA's catalogue]({CATALOGUE_URL}),"
    yield f"for GPUs from Ampere on. Codes without a row are `{UNLISTED}`, and so is 999, the"
    yield "driver's own word for an unknown one; the recovery action decides."
    yield ""
    yield "| XID | meaning | NVIDIA's action | class | why, where not by the action |"
    yield "| --- | --- | --- | --- | --- |"
    for row in ROWS:
        yield _xid_line(row)


def _xid_line(row: Row) -> str:
    action = "none published" if row.action is None else f"`{row.action}`"
    return f"| {spans(row.codes)} | {row.meaning} | {action} | `{row.kind}` | {row.why} |"


def _differences() -> str:
    def healthy(kind: HealthClass) -> str:
        codes = (code for code, xid in TABLE.items() if xid.kind is kind)
        return spans(sorted(set(codes) - NVIDIA_IGNORES))

    watched = [code for code in sorted(NVIDIA_IGNORES) if TABLE[code].kind is not HealthClass.APP]
    repeated = [f"{code} where it repeats" for code in sorted(REPEATED & NVIDIA_IGNORES)]
    words = [f"{code} (`{TABLE[code].kind}`)" for code in watched] + repeated
    return _DIFFERENCES.format(
        app=healthy(HealthClass.APP),
        degraded=healthy(HealthClass.DEGRADED),
        watched=", ".join(words),
        unlisted=UNLISTED,
    )


def spans(codes: list[int] | tuple[int, ...]) -> str:
    """Return ascending *codes* with runs of three and more shortened: ``39-41, 70``."""
    runs: list[list[int]] = []
    for code in codes:
        if runs and code == runs[-1][-1] + 1:
            runs[-1].append(code)
        else:
            runs.append([code])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


def made() -> Mapping[Path, str]:
    """Return the page."""
    return {PAGE: page()}


def owned() -> Iterable[Path]:
    """Return the file of this generator."""
    return (PAGE,)
