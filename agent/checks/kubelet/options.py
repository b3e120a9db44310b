"""Rules on the policy options of the kubelet's managers: whether it starts with them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.checks.inputs import Inputs, missing_gpus, no_gpus
from agent.checks.kubelet.inputs import is_on, lacking, place, starting, stated, unless, version
from agent.checks.kubelet.kubelet_option_levels import (
    CPU,
    NEWEST,
    TOPOLOGY,
    Manager,
    bad_values,
    clashes,
    refusal,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.kubernetes import release
from agent.model.snapshot import Snapshot

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
