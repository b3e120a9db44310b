"""Policy options of the CPU and Topology Managers, and their validity at the kubelet's start."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from nodetopo.checks.inputs import no_gpus
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.kubelet.inputs import (
    is_on,
    kubelet_rule,
    lacking,
    missing_settings,
    place,
    starting,
    stated,
    version,
)
from nodetopo.components.audit.rules.kubelet.remedies import restarted_with
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubernetes import Release, go_bool, release
from nodetopo.model.snapshot import Snapshot

NEWEST: Release = (1, 37)
"""The newest release whose options are in these tables."""


LEAST_NODES = 8
"""The smallest value of max-allowable-numa-nodes, and its default
(pkg/kubelet/cm/topologymanager/topology_manager.go, defaultMaxAllowableNUMANodes)."""


MAX_NODES = "max-allowable-numa-nodes"


CLOSEST = "prefer-closest-numa-nodes"


class Option(Struct, frozen=True, kw_only=True):
    """A policy option, and the first release at each level; ``None`` where it never had that level.

    Attributes:
        alpha: it needs the manager's gate for alpha options, which is off by default.
        beta: it needs the gate for beta options, which is on by default.
        stable: it needs no gate.
    """

    name: str
    alpha: Release | None = None
    beta: Release | None = None
    stable: Release | None = None


class Manager(Struct, frozen=True, kw_only=True):
    """The options of a manager, and pairs that it does not take together.

    Attributes:
        gates: prefix of the names of its feature gates.
    """

    gates: str
    options: tuple[Option, ...]
    exclusive: tuple[tuple[str, str], ...] = ()


CPU = Manager(
    gates="CPUManagerPolicy",
    options=(
        Option(name="full-pcpus-only", alpha=(1, 22), beta=(1, 23), stable=(1, 33)),
        Option(name="distribute-cpus-across-numa", alpha=(1, 23), beta=(1, 33)),
        Option(name="align-by-socket", alpha=(1, 25)),
        Option(name="distribute-cpus-across-cores", alpha=(1, 31)),
        Option(name="strict-cpu-reservation", alpha=(1, 32), beta=(1, 33), stable=(1, 35)),
        Option(
            name="prefer-align-cpus-by-uncorecache", alpha=(1, 32), beta=(1, 34), stable=(1, 36)
        ),
    ),
    exclusive=(
        ("full-pcpus-only", "distribute-cpus-across-cores"),
        ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
    ),
)
"""pkg/kubelet/cm/cpumanager/policy_options.go of 1.32 to 1.37, and for older releases
https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/."""


TOPOLOGY = Manager(
    gates="TopologyManagerPolicy",
    options=(
        Option(name=CLOSEST, alpha=(1, 26), beta=(1, 28), stable=(1, 32)),
        Option(name=MAX_NODES, beta=(1, 31), stable=(1, 35)),
    ),
)
"""pkg/kubelet/cm/topologymanager/policy_options.go of 1.32 to 1.37, and for older releases
https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/."""


def refusal(manager: Manager, name: str, number: Release, gates: Mapping[str, bool]) -> str | None:
    """Return why a kubelet of release *number* refuses the option *name*; ``None`` if it takes it.

    ``None`` also for a name that only releases after :data:`NEWEST` might know.
    """
    option = next((option for option in manager.options if option.name == name), None)
    if option is None:
        return None if number > NEWEST else "no such option"
    if option.stable is not None and number >= option.stable:
        return None
    for level, since in (("Beta", option.beta), ("Alpha", option.alpha)):
        if since is not None and number >= since:
            gate = f"{manager.gates}{level}Options"
            is_on_by_default = gates.get(f"All{level}", level == "Beta")
            return None if gates.get(gate, is_on_by_default) else f"{gate} is off"
    return f"Kubernetes {number[0]}.{number[1]} has no such option"


def bad_values(manager: Manager, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each known option whose value the kubelet rejects, with the values that it accepts."""
    for name in (option.name for option in manager.options if option.name in options):
        if name == MAX_NODES:
            if limit(options[name]) is None:
                yield name, f"a whole number, at least {LEAST_NODES}"
        elif go_bool(options[name]) is None:
            yield name, "true or false"


def limit(text: str) -> int | None:
    """Return a value of max-allowable-numa-nodes; ``None`` where the kubelet refuses it."""
    is_number = re.fullmatch(r"[+]?[0-9]{1,18}", text) is not None
    return int(text) if is_number and int(text) >= LEAST_NODES else None


def clashes(manager: Manager, options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of options that are on and that the kubelet does not take together."""
    on = {name for name, value in options.items() if go_bool(value)}
    return tuple(pair for pair in manager.exclusive if on.issuperset(pair))


def _accepted(
    snapshot: Snapshot, before: KubeletSettings, manager: Manager, field: str
) -> Mapping[str, Any]:
    """Return the options of *before* without those with which the kubelet does not start."""
    options: Mapping[str, str] = getattr(before, field) or {}
    number, gates = release(version(snapshot)), before.feature_gates or {}
    bad = {name for name, _ in bad_values(manager, options)}
    bad |= {other for _, other in clashes(manager, options)}
    bad |= {name for name in options if number and refusal(manager, name, number, gates)}
    if manager is CPU and before.cpu_manager_policy != "static":
        bad |= options.keys()
    return {field: {name: value for name, value in options.items() if name not in bad}}


def _missing(snapshot: Snapshot, manager: Manager, field: str) -> Iterator[Missing]:
    """Name the inputs that are missing although an option is stated."""
    settings = starting(snapshot)
    options: Mapping[str, str] = (stated(settings, field) if settings else None) or {}
    if not options:
        return
    yield from lacking(snapshot, settings, "featureGates")
    number = release(version(snapshot))
    if number is None:
        yield Missing("version of the kubelet")
    elif number > NEWEST:
        names = {option.name for option in manager.options}
        for name in options:
            if name not in names:
                yield Missing(f"{field}: {name}, unknown here")


@rule(
    "KUB-009",
    Severity.ERROR,
    unless=no_gpus,
    cure=restarted_with(
        lambda snapshot, before: _accepted(snapshot, before, CPU, "cpu_manager_options")
    ),
)
def cpu_manager_options(snapshot: Snapshot) -> Judgement:
    """Check the options as the kubelet does at its start."""
    settings, field = starting(snapshot), "cpuManagerPolicyOptions"
    yield from missing_settings(snapshot, settings, "cpuManagerPolicy", field)
    yield from _missing(snapshot, CPU, field)
    if settings is None:
        return
    options = settings.cpu_manager_options or {}
    if settings.cpu_manager_policy == "none":
        # pkg/kubelet/cm/cpumanager/policy_none.go, NewNonePolicy.
        if options:
            yield Finding(
                subject=place(settings, field),
                observed=f"{', '.join(sorted(options))} with cpuManagerPolicy none",
                expected="no options, or cpuManagerPolicy static",
            )
        return
    yield from _refused(snapshot, settings, CPU, field)

    # pkg/kubelet/cm/cpumanager/policy_options.go, ValidateStaticPolicyOptions.
    option = "align-by-socket"
    if not is_on(options, option):
        return
    subject = place(settings, field)
    if settings.topology_manager_policy == "single-numa-node":
        observed = f"{option} with topologyManagerPolicy single-numa-node"
        yield Finding(subject=subject, observed=observed, expected="one of them")
    sockets = len(snapshot.cpu.sockets) if snapshot.cpu else 0
    nodes = sum(len(node.cpus) > 0 for node in snapshot.numa_nodes or ())
    if sockets > nodes > 0:
        observed = f"{option} with {sockets} sockets and {nodes} NUMA nodes"
        yield Finding(subject=subject, observed=observed, expected="a NUMA node for each socket")


_TOPOLOGY_OPTIONS = "topologyManagerPolicyOptions"


def _missing_for_options(snapshot: Snapshot) -> Iterator[Missing]:
    return _missing(snapshot, TOPOLOGY, _TOPOLOGY_OPTIONS)


@kubelet_rule(
    "KUB-010",
    Severity.ERROR,
    policy=("topologyManagerPolicy", "best-effort", "restricted", "single-numa-node"),
    needs=(_TOPOLOGY_OPTIONS, _missing_for_options),
    cure=restarted_with(
        lambda snapshot, before: _accepted(snapshot, before, TOPOLOGY, "topology_manager_options")
    ),
)
def topology_manager_options(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Check the options as the kubelet does at its start; with policy none it reads none."""
    yield from _refused(snapshot, settings, TOPOLOGY, _TOPOLOGY_OPTIONS)


def _refused(
    snapshot: Snapshot, settings: KubeletSettings, manager: Manager, field: str
) -> Judgement:
    """Yield each option, value and pair of options that the kubelet refuses."""
    options: Mapping[str, str] = stated(settings, field) or {}
    subject = place(settings, field)
    number, gates = release(version(snapshot)), settings.feature_gates
    if number is not None and gates is not None:
        for name in options:
            if (reason := refusal(manager, name, number, gates)) is not None:
                expected = "an option that this kubelet takes"
                yield Finding(subject=subject, observed=f"{name}: {reason}", expected=expected)
    for name, expected in bad_values(manager, options):
        yield Finding(subject=subject, observed=f"{name}: {options[name]}", expected=expected)
    for option, other in clashes(manager, options):
        yield Finding(subject=subject, observed=f"{option} and {other}", expected="one of them")
