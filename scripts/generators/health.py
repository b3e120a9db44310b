"""The documentation page of health, generated from the tables and the default rules."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from nodetopo.components.gpus.health.recovery import ACTIONS, NONE
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.components.rdma.health.hca import HcaRules
from nodetopo.components.rdma.health.monitor import LOOK_S, PORTS_A_LOOK, SCAN_PAUSE_S
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.xid import CATALOGUE_URL, REPEATED, ROWS, TABLE, TABLE_VERSION, UNLISTED, Row
from nodetopo.pages import WORDS, tables

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "health.md"

NVIDIA_IGNORES = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that NVIDIA's device plugin 0.17.1 to 0.20.0 ignores (its ``health.go``); every other one
makes the GPU Unhealthy there for as long as the plugin runs."""

_RULES = HealthRules()
_HCA_RULES = HcaRules()

_HCA_CAUSES = "| reason | meaning | what to do |\n| --- | --- | --- |\n" + "".join(
    f"| {name} | {meaning} | {cure} |\n"
    for name, meaning, cure, _ in tables(WORDS, "HCA health")[0]
)

_HEAD = f"""\
# Health of GPUs and HCAs

How nodetopo judges GPUs and RDMA adapters (HCAs), when they recover, and how to bring one back.
Generated from `agent/nodetopo/components/gpus/health/`.

nodetopo advertises each GPU to the kubelet as Healthy or Unhealthy. All replicas and MIG devices
of the GPU have the same state. Pods on an Unhealthy GPU keep running: the daemon kills, drains and
resets nothing. It reports what it observed, and stops the allocation of GPUs that would fail. The
verdict and its reason are in the metrics and in Events. The kubelet reports Healthy or Unhealthy in
`allocatedResourcesStatus` of the pods (feature gate `ResourceHealthStatus`, enabled by default from
Kubernetes 1.36 on).

With `cdi-spec: write`, a GPU without a CDI specification is also Unhealthy for the kubelet
([allocate.md](../reference/allocate.md#the-cdi-specification)).

## Sources

| source | observations |
| --- | --- |
| NVML events | XIDs, the error codes of the driver, within a second. Some never arrive: a GPU \
that is off the bus can send none, and 79, 119 and 120 are known to get lost |
| each scan of NVML | lost GPUs, the driver's recovery action (field 230), memory rows and pages \
that wait for a reset or couldn't be replaced, SRAM errors above NVIDIA's threshold for an RMA, \
the number of NVLinks that are up, the number of PCIe lanes |
| each scan of the PCI bus | GPUs that have disappeared, regardless of NVML |
| the state of NVML | calls that don't return, a library that refuses everything |

## Classes

| class | the GPU is | until |
| --- | --- | --- |
| `app` | Healthy; the code is counted | |
| `degraded` | Healthy, allocated only if no sound GPU is free | it looks sound and the error \
hasn't returned for {_RULES.degraded_s / 3600:g} h, or a reset was seen |
| `reset` | Unhealthy | it looks sound after a reset |
| `reboot` | Unhealthy | the node has booted |
| `rma` | Unhealthy | an operator clears it |

- **Looks sound**: NVML answers for the GPU, the driver requests no action, nothing waits for a
  reset, and as many NVLinks are up as ever in this boot. NVLinks don't count in MIG mode.
- **PCIe lanes**: a link with fewer lanes than GPU and slot support makes the GPU `degraded`
  (`PcieLanesMissing`, check PCI-001), but keeps no other fault alive, because it can last as long
  as the GPU is in its slot. Unlike the generation, the width doesn't drop while a GPU idles. An
  unreported width is no fault.
- **Unreported values**: the last known value is kept while NVML can't report it, for example row
  remapping with MIG on.
- **After a reset**: the driver reports that no recovery action is open, or a reset was visible: an
  open action closed, waiting rows no longer wait, or the error count since the driver was loaded
  fell. If the driver supports none of these, including
  field 230, the GPU stays Unhealthy until a reboot.

## The protocol

1. The same XID of the same GPU within {_RULES.dedupe_s:g} s is one occurrence. The counter has all.
2. The class comes from the table below, or from `xid-classes`. The driver's requests take
   precedence: an open recovery action makes a GPU worse than the table says. Once no action is
   open, a `reset` verdict can clear on the evidence above. A driver-requested reboot is done once
   the driver stops requesting it; a reboot by the table needs a boot.
3. A GPU recovers by evidence that lasts for `recovery`, {_RULES.recovery_s:g} s: one scan starts
   the timer, and a later scan must still find the GPU sound. A new error restarts the timer. A scan
   that began before an error is no evidence about it.
4. The application faults {" and ".join(f"{code}" for code in sorted(REPEATED))} degrade the GPU \
if they come {_RULES.repeats} times within
   {_RULES.degraded_s / 3600:g} h: then the application is seldom the cause.
5. A GPU that turned Unhealthy {_RULES.flaps} times within {_RULES.flap_s / 3600:g} h stays
   Unhealthy (`Flapping`) until the node boots or an operator clears it.
6. Verdicts survive a restart of the daemon, in `health-file`. Another boot ends all verdicts except
   `rma`. A boot empties the default directory of the file.
7. An XID that NVML reports without a GPU counts for every GPU until a scan finds that GPU sound. It
   makes no GPU `Flapping`. A failure to wait for events is no evidence about any GPU.
8. If the health file is damaged while the daemon runs, the next scan writes it again from memory.
   If the daemon can't read the file at a start, all verdicts are lost, and every GPU is Unhealthy
   (`HealthNotKnown`) until it has looked sound for `recovery`. No scan could give the evidence that
   the classes `reboot` and `rma` need. A GPU that is still broken shows it again: as a loss, a
   recovery action, a failed row remap or the next XID. `health.json.bad` keeps the old content. A
   file of a newer release's schema stays unchanged, and the daemon keeps verdicts in memory only. A
   missing file isn't damage: the daemon then forgets every verdict.

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
| the daemon restarts before it answers | the request is lost and isn't repeated |

Each clear is a line in the log and an Event `HealthCleared` with the faults. The daemon takes
requests on a socket in the directory of `health-file` that only root and its own user can reach;
the HTTP server takes none. With a daemon of an older release, remove its health file: that forgets
the verdicts on every GPU.

## When NVML fails as a whole

| failure | GPUs | reason |
| --- | --- | --- |
| {_RULES.unanswered} scans in a row get no answer, or one call is stuck for \
{_RULES.unresponsive_s / 60:g} min: the driver hangs, and new work would hang too | Unhealthy at \
once | `NvmlUnresponsive` |
| NVML refuses with any code. Usually, the daemon's container has lost its devices, for example \
after `systemctl daemon-reload`, while jobs continue | unchanged for {_RULES.no_reading_s / 60:g} \
min, then Unhealthy | `NvmlRefuses` |
| the same for {_RULES.fresh_after_s / 60:g} min while PCI shows GPUs, except codes 9 (driver not \
loaded) and 18 | unchanged; the daemon requests a new container, at most once in \
{_RULES.fresh_every_s / 3600:g} h, and only if the health file is writable | |
| code 18, kernel module and library of different versions: a driver upgrade is in progress. Jobs \
continue with their library; new pods would fail | unchanged for {_RULES.no_reading_s / 60:g} min, \
then Unhealthy; no restart | `NvmlVersionMismatch` |
| the library is gone, for example while a driver container is replaced | the same | \
`NvmlLibraryGone` |
| the process that reads NVML dies | the same | `NvmlDied` |

All of these end {_RULES.back_s:g} s after NVML returns readings again. A node that never had a GPU
has no GPU to make Unhealthy.
"""

_TUNING = """\
## Tuning

| setting | effect |
| --- | --- |
| `health-checks: false` | no verdicts; only lost GPUs are Unhealthy |
| `xid-classes: "74=degraded,92=app"` | another class for single codes; `app` ignores a code, even \
if repeated |
| `recovery: 5m` | longer evidence before a GPU is allocatable again |
| `health-file: /var/lib/nodetopo/health.json` | a directory that survives a boot, so that `rma` \
verdicts do too |

nodetopo understands `DP_DISABLE_HEALTHCHECKS` and `DP_ENABLE_HEALTHCHECKS` of NVIDIA's plugin; see
[configuration.md](configuration.md).
"""

_DIFFERENCES = """\
## Differences from NVIDIA's device plugin

NVIDIA's plugin (0.17.1 to 0.20.0) ignores six XIDs and makes the GPU Unhealthy on every other one.
The GPU stays Unhealthy until the plugin restarts and forgets everything.

- **Healthy here, Unhealthy there**: {app} (`app`), and {degraded} (`degraded`).
- **Watched here, ignored there**: {watched}.
- **Codes in neither table**: `{unlisted}` here, Unhealthy there.
- **Seen here without an XID**: lost GPUs, recovery actions, failed row remaps and a driver that
  hangs.
- **Shared GPUs**: all replicas have the GPU's state here. There, up to 0.20.0, one replica turns
  Unhealthy.
- **Errors while waiting for events**: make no GPU Unhealthy here, and all GPUs there.
"""


_HOLDS = ", ".join(f"{_HCA_RULES.hold_s(falls):g}" for falls in range(1, 8))

_HCAS = f"""\
## HCAs

While HCAs are advertised (`rdma-config`), each HCA is Healthy as long as one of its ports is
ACTIVE. The daemon reads the ports every {LOOK_S:g} s, and less often if there are more than \
{PORTS_A_LOOK} ports. `health-checks`
turns this off too.

1. A fault counts once it has lasted for {_HCA_RULES.confirm_s:g} s, over at least two readings. A \
port that goes down
   leaves the device list within ten seconds; a link that retrains stays in it.
2. An HCA that is down when the daemon starts is Unhealthy at once.
3. An unreadable state keeps the verdict, for example EINVAL, the answer of drivers for restricted
   functions. A refused file isn't read again before RDMA devices are added or removed.
4. An HCA is Healthy again once it has been up for `recovery`. From the third fall within an hour
   on, that time doubles: {_HOLDS} s. So an HCA changes at most fourteen
   times an hour. With each change the kubelet writes its checkpoint.
5. Devices of a pool in mode `shared` represent all of its HCAs: containers get the healthy HCAs,
   and the devices are Unhealthy once no HCA is healthy.
6. An HCA that is gone stays in the capacity, under its ID. A renamed HCA is the same HCA, because
   its PCI function identifies it. If RDMA devices are added, removed or renamed, the daemon scans
   the node, at most once in {SCAN_PAUSE_S:g} s.
7. HCAs and verdicts survive a restart of the daemon in the same boot, in `hcas.json` next to
   `health-file`. An Unhealthy HCA stays so until it has been up for its whole time again, falls
   keep counting, a renamed HCA keeps its ID, and an HCA that is gone stays in the capacity. An HCA
   that went down meanwhile is Unhealthy at once. Another boot starts again from the ports, as does
   an unusable file or a file with another release's schema, which the daemon replaces. A release
   that doesn't know the file ignores it.

{_HCA_CAUSES}"""


def page() -> str:
    """Return the whole page as Markdown."""
    parts = (_HEAD, _actions(), _xids(), _TUNING, _HCAS, _differences())
    return "\n".join(parts)


def _actions() -> str:
    lines = [
        "## Recovery actions",
        "",
        "The values of field 230 (`nvmlDeviceGpuRecoveryAction_t`). An action that isn't in the",
        "table degrades the GPU.",
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
    yield "driver's code for unknown errors; the recovery action decides."
    yield ""
    yield "| XID | meaning | NVIDIA's action | class | reason, if not the action |"
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
