"""Rules on the policy options of the kubelet's managers: whether it starts with them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.checks.inputs import Inputs, missing_gpus, no_gpus
from agent.checks.kubelet.inputs import is_on, lacking, place, starting, stated, unless, version
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.kubernetes import Release, go_bool, release
from agent.model.snapshot import Snapshot

# The policy options of the CPU and Topology Managers, and what a kubelet makes of one.

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


_TOPOLOGY_POLICIES = ("best-effort", "restricted", "single-numa-node")


_SOCKET = "align-by-socket"


_SOURCE = "https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/cm"


@dataclass(frozen=True, slots=True)
class _Stated:
    """The options of one manager, as they are stated in its *field* beside its *policy*."""

    manager: Manager
    policy: str
    field: str

    def needs(self, snapshot: Snapshot) -> Inputs:
        """Name what is missing; without options nothing but them has to be known."""
        settings = starting(snapshot)
        absent = missing_gpus(snapshot) + lacking(snapshot, settings, self.policy, self.field)
        if settings is None or not (options := self.options(settings)):
            return absent
        found = release(version(snapshot))
        gates = lacking(snapshot, settings, "featureGates")
        if found is None:
            return (*absent, *gates, "version of the kubelet")
        return absent + gates + (self._unheard(options) if found > NEWEST else ())

    def _unheard(self, options: Mapping[str, str]) -> Inputs:
        known = {option.name for option in self.manager.options}
        return tuple(f"{self.field}: {name}, unknown here" for name in options if name not in known)

    def options(self, settings: KubeletSettings) -> Mapping[str, str]:
        """Return what is stated; empty where it is not known."""
        return stated(settings, self.field) or {}

    def findings(self, snapshot: Snapshot, settings: KubeletSettings) -> Iterator[Finding]:
        """Find each option, value and pair of options that the kubelet refuses."""
        options, subject = self.options(settings), place(settings, self.field)
        for name, reason in self._refused(snapshot, settings):
            expected = "an option that this kubelet takes"
            yield Finding(subject=subject, observed=f"{name}: {reason}", expected=expected)
        for name, expected in bad_values(self.manager, options):
            yield Finding(subject=subject, observed=f"{name}: {options[name]}", expected=expected)
        for one, other in clashes(self.manager, options):
            yield Finding(subject=subject, observed=f"{one} and {other}", expected="one of them")

    def _refused(self, snapshot: Snapshot, settings: KubeletSettings) -> Iterator[tuple[str, str]]:
        found, gates = release(version(snapshot)), settings.feature_gates
        if found is None or gates is None:
            return
        for name in self.options(settings):
            reason = refusal(self.manager, name, found, gates)
            if reason is not None:
                yield name, reason


_CPU = _Stated(CPU, "cpuManagerPolicy", "cpuManagerPolicyOptions")


_TOPOLOGY = _Stated(TOPOLOGY, "topologyManagerPolicy", "topologyManagerPolicyOptions")


def _bad_cpu_options(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = starting(snapshot)
    if settings is None or no_gpus(snapshot) is not None:
        return ()
    if settings.cpu_manager_policy == "none":
        return tuple(_options_of_none(settings))
    return (*_CPU.findings(snapshot, settings), *_by_socket(snapshot, settings))


def _options_of_none(settings: KubeletSettings) -> Iterator[Finding]:
    # pkg/kubelet/cm/cpumanager/policy_none.go, NewNonePolicy.
    if options := settings.cpu_manager_options:
        yield Finding(
            subject=place(settings, _CPU.field),
            observed=f"{', '.join(sorted(options))} with cpuManagerPolicy none",
            expected="no options, or cpuManagerPolicy static",
        )


def _by_socket(snapshot: Snapshot, settings: KubeletSettings) -> Iterator[Finding]:
    # pkg/kubelet/cm/cpumanager/policy_options.go, ValidateStaticPolicyOptions.
    if not is_on(settings.cpu_manager_options, _SOCKET):
        return
    subject = place(settings, _CPU.field)
    if settings.topology_manager_policy == "single-numa-node":
        observed = f"{_SOCKET} with topologyManagerPolicy single-numa-node"
        yield Finding(subject=subject, observed=observed, expected="one of them")
    sockets = len(snapshot.cpu.sockets) if snapshot.cpu else 0
    nodes = sum(len(node.cpus) > 0 for node in snapshot.numa_nodes or ())
    if sockets > nodes > 0:
        observed = f"{_SOCKET} with {sockets} sockets and {nodes} NUMA nodes"
        yield Finding(subject=subject, observed=observed, expected="a NUMA node for each socket")


def _bad_topology_options(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = starting(snapshot)
    if settings is None or no_gpus(snapshot) is not None:
        return ()
    if settings.topology_manager_policy not in _TOPOLOGY_POLICIES:
        return ()
    return tuple(_TOPOLOGY.findings(snapshot, settings))


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-009",
        claim="the kubelet starts with its CPU Manager options",
        why="The kubelet does not start with an option that it does not know, whose feature gate "
        "is off, or that excludes another one.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_CPU.needs,
        check=_bad_cpu_options,
        skips=no_gpus,
        remedy="take the option out of cpuManagerPolicyOptions, or state its feature gate in "
        "featureGates, before the kubelet restarts",
        reference=f"{_SOURCE}/cpumanager/policy_options.go",
    ),
    Rule(
        code="KUB-010",
        claim="the kubelet starts with its Topology Manager options",
        why="The kubelet does not start with an option that it does not know, whose feature gate "
        "is off, or whose value it cannot read.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_TOPOLOGY.needs,
        check=_bad_topology_options,
        skips=unless(starting, "topologyManagerPolicy", *_TOPOLOGY_POLICIES),
        remedy="correct or remove the option in topologyManagerPolicyOptions before the kubelet "
        "restarts",
        reference=f"{_SOURCE}/topologymanager/policy_options.go",
    ),
)
