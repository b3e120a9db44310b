"""Rules on the NCCL variables that pods set: whether NCCL reads them, and what for."""

from collections.abc import Iterator

from agent.checks.gpu_pods import container_name, live
from agent.checks.pods import pods_nccl_paths
from agent.checks.pods.inputs import listed
from agent.checks.pods.pods_environment import missing_environment
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pod import Container
from agent.model.snapshot import Snapshot
from agent.nccl.variables import KNOWN, LONGEST, NEWEST, PREFIX, Standing, instead_of, is_foreign

IN_USE = (2, 18)
"""The oldest NCCL that a variable must be for: PyTorch 2.1, of 2023, came with it."""

MOST = 20
"""Variables of one container that findings speak of; a pod may set thousands."""

_GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


def _unread(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=container_name(pod, container), observed=observed, expected=expected)
        for pod in live(snapshot)
        for container in pod.containers
        for observed, expected in _slips(container)
    )


def _slips(container: Container) -> Iterator[tuple[str, str]]:
    unread = [name for name in container.environment or () if not _is_read(name)]
    for name in unread[:MOST]:
        shown = name if len(name) <= LONGEST else f"{name[:LONGEST]}…"
        yield f"{shown}, {_ended(name)}", instead_of(name) or "no such variable"


def _is_read(name: str) -> bool:
    if is_foreign(name):
        return True
    known = KNOWN.get(name)
    return known is not None and (known.until is None or _release(known.until) >= IN_USE)


def _ended(name: str) -> str:
    known = KNOWN.get(name)
    if known is None:
        return f"which no NCCL up to {NEWEST} reads"
    return f"which NCCL {known.until} was the last to read"


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _for_debugging(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=container_name(pod, container),
            observed=listed(names),
            expected="unset, once what they work around is mended",
        )
        for pod in live(snapshot)
        for container in pod.containers
        if (names := tuple(_debugging(container)))
    )


def _debugging(container: Container) -> Iterator[str]:
    for name in container.environment or ():
        known = KNOWN.get(name)
        if known is not None and known.standing is Standing.DEBUGGING and _is_read(name):
            yield name


RULES: tuple[Rule, ...] = (
    Rule(
        code="POD-001",
        claim="NCCL reads every NCCL variable that pods set",
        why="NCCL says nothing of a variable that it does not know: a misspelt one, or one that "
        "never was, such as NCCL_PORT_RANGE, changes nothing.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing_environment,
        check=_unread,
        remedy=f"remove the variable, or spell it as NCCL does; `{PREFIX}DEBUG=INFO` with "
        f"`{PREFIX}DEBUG_SUBSYS=ENV` makes NCCL name those it reads",
        reference=_GUIDE,
    ),
    Rule(
        code="POD-002",
        claim="no NCCL variable of a pod works against this node",
        why="Recipes travel from machine to machine: one that turns off NVLink or RDMA, or names "
        "the wrong adapters, costs most of the bandwidth that the node has.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=pods_nccl_paths.missing,
        check=pods_nccl_paths.findings,
        remedy=f"remove the variable or give it the value that this node needs; `{PREFIX}"
        "DEBUG=INFO` shows the paths that NCCL then takes",
        reference=_GUIDE,
    ),
    Rule(
        code="POD-003",
        claim="pods leave NCCL's debugging variables unset",
        why="They keep NCCL from tuning itself to the node; its guide wants them out of "
        "production and out of scripts, except as workarounds.",
        area=Area.PODS,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=missing_environment,
        check=_for_debugging,
        remedy="try the job without them, and keep only what measurably helps",
        reference=f"{_GUIDE}#debugging",
    ),
)
