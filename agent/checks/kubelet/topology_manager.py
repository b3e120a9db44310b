"""Rules on numbers of NUMA nodes that the kubelet's managers cannot bear."""

from collections.abc import Callable, Iterator, Mapping

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kubelet.inputs import is_on, missing_settings_and_nodes, place, starting, unless
from agent.checks.kubelet.kubelet_option_levels import CLOSEST, LEAST_NODES, MAX_NODES, limit
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.snapshot import Snapshot

_POLICY = "topologyManagerPolicy"
_OPTIONS = "topologyManagerPolicyOptions"
_POLICIES = ("best-effort", "restricted", "single-numa-node")
_MASK_BITS = 64
"""Bits of the Topology Manager's mask (pkg/kubelet/cm/topologymanager/bitmask/bitmask.go)."""
_SOURCE = "https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/cm/topologymanager"

_Check = Callable[[KubeletSettings, tuple[int, ...]], Iterator[Finding]]
_not_aligning = unless(starting, _POLICY, *_POLICIES)
_needs: Callable[[Snapshot], Inputs] = missing_settings_and_nodes(starting, _POLICY, _OPTIONS)


def _where_aligned(find: _Check) -> Callable[[Snapshot], tuple[Finding, ...]]:
    """Let *find* judge the ids of all NUMA nodes, where the Topology Manager has a policy."""

    def check(snapshot: Snapshot) -> tuple[Finding, ...]:
        settings = starting(snapshot)
        is_known = settings is not None and settings.topology_manager_options is not None
        if not is_known or settings is None or snapshot.numa_nodes is None:
            return ()
        if settings.topology_manager_policy not in _POLICIES or no_gpus(snapshot) is not None:
            return ()
        return tuple(find(settings, tuple(node.id for node in snapshot.numa_nodes)))

    return check


def _too_many(settings: KubeletSettings, nodes: tuple[int, ...]) -> Iterator[Finding]:
    allowed = _allowed(settings.topology_manager_options or {})
    if allowed is not None and len(nodes) > allowed:
        yield Finding(
            subject=place(settings, _OPTIONS),
            observed=f"{len(nodes)} NUMA nodes, those without CPUs included",
            expected=f"at most {allowed}, or a {MAX_NODES} that allows them",
        )


def _allowed(options: Mapping[str, str]) -> int | None:
    return limit(options[MAX_NODES]) if MAX_NODES in options else LEAST_NODES


def _sparse(settings: KubeletSettings, nodes: tuple[int, ...]) -> Iterator[Finding]:
    if not is_on(settings.topology_manager_options, CLOSEST):
        return
    if nodes != tuple(range(len(nodes))):
        yield Finding(
            subject=place(settings, _OPTIONS),
            observed=f"{CLOSEST} with NUMA nodes {', '.join(map(str, nodes))}",
            expected=f"NUMA nodes 0 to {len(nodes) - 1} without a gap, or no {CLOSEST}",
        )


def _too_high(settings: KubeletSettings, nodes: tuple[int, ...]) -> Iterator[Finding]:
    for node in nodes:
        if node >= _MASK_BITS:
            yield Finding(
                subject=f"NUMA node {node}",
                observed=f"{place(settings, _POLICY)} is {settings.topology_manager_policy}",
                expected=f"numbers below {_MASK_BITS}, or topologyManagerPolicy none",
            )


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-018",
        claim="the Topology Manager accepts the number of NUMA nodes",
        why="On a machine with more NUMA nodes than it allows, 8 without the option, the kubelet "
        "does not start. The memory of coherent GPUs (GH200, GB200) makes NUMA nodes too.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs,
        check=_where_aligned(_too_many),
        skips=_not_aligning,
        remedy="set topologyManagerPolicyOptions: {max-allowable-numa-nodes: ...} to the number "
        "of NUMA nodes; with coherent GPUs rather switch the driver to CDMM mode "
        "(NVreg_CoherentGPUMemoryMode=driver), in which their memory makes no NUMA nodes",
        reference="https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/"
        "#policy-option-max-allowable-numa-nodes",
    ),
    Rule(
        code="KUB-019",
        claim="prefer-closest-numa-nodes meets NUMA nodes without gaps in their numbers",
        why="The kubelet looks distances up by a node's number in a list without gaps, and "
        "panics at the first pod that it aligns.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs,
        check=_where_aligned(_sparse),
        skips=_not_aligning,
        remedy="take prefer-closest-numa-nodes out of topologyManagerPolicyOptions and restart "
        "the kubelet",
        reference=f"{_SOURCE}/numa_info.go",
    ),
    Rule(
        code="KUB-020",
        claim="every NUMA node's number fits the Topology Manager's mask",
        why="The mask has 64 bits; with a higher number the kubelet has no mask of all nodes "
        "and fails as soon as it aligns a pod.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs,
        check=_where_aligned(_too_high),
        skips=_not_aligning,
        remedy="number the nodes lower in the firmware's setup or the driver's mode (CDMM on "
        "coherent GPUs), or set topologyManagerPolicy: none",
        reference=f"{_SOURCE}/bitmask/bitmask.go",
    ),
)
