"""The policy options of the CPU and Topology Managers, and what a kubelet makes of one."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.model.go_bool import go_bool
from agent.model.kubernetes import Release

NEWEST: Release = (1, 37)
"""The newest release whose options are in these tables."""

LEAST_NODES = 8
"""The smallest value of max-allowable-numa-nodes, and its default
(pkg/kubelet/cm/topologymanager/topology_manager.go, defaultMaxAllowableNUMANodes)."""

MAX_NODES = "max-allowable-numa-nodes"
CLOSEST = "prefer-closest-numa-nodes"
_NUMBER = re.compile(r"[+]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option, and since when it has which level; ``None`` where it never had it.

    Attributes:
        alpha: it needs the manager's gate for alpha options, which is off by default.
        beta: it needs the gate for beta options, which is on by default.
        stable: it needs no gate.
    """

    name: str
    alpha: Release | None = None
    beta: Release | None = None
    stable: Release | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """One manager's options, and options that it does not take together.

    Attributes:
        gates: what the names of its feature gates begin with.
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


def refusal(manager: Manager, name: str, release: Release, gates: Mapping[str, bool]) -> str | None:
    """Return why a kubelet of *release* refuses the option *name*; ``None`` where it takes it.

    ``None`` also for a name that only releases after :data:`NEWEST` might know.
    """
    option = next((one for one in manager.options if one.name == name), None)
    if option is None:
        return None if release > NEWEST else "no such option"
    if _since(option.stable, release):
        return None
    if _since(option.beta, release):
        gate = f"{manager.gates}BetaOptions"
        return None if gates.get(gate, gates.get("AllBeta", True)) else f"{gate} is off"
    if _since(option.alpha, release):
        gate = f"{manager.gates}AlphaOptions"
        return None if gates.get(gate, gates.get("AllAlpha", False)) else f"{gate} is off"
    return f"Kubernetes {release[0]}.{release[1]} has no such option"


def _since(first: Release | None, release: Release) -> bool:
    return first is not None and release >= first


def bad_values(manager: Manager, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each known option whose value the kubelet cannot read, with what it would read."""
    for name in (option.name for option in manager.options if option.name in options):
        if name == MAX_NODES:
            if limit(options[name]) is None:
                yield name, f"a whole number, at least {LEAST_NODES}"
        elif go_bool(options[name]) is None:
            yield name, "true or false"


def limit(text: str) -> int | None:
    """Return a value of max-allowable-numa-nodes; ``None`` where the kubelet refuses it."""
    found = _NUMBER.fullmatch(text)
    return int(text) if found is not None and int(text) >= LEAST_NODES else None


def clashes(manager: Manager, options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of options that are on and that the kubelet does not take together."""
    on = {name for name, value in options.items() if go_bool(value)}
    return tuple(pair for pair in manager.exclusive if on.issuperset(pair))
