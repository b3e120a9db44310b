"""The smallest changes with which a rejected pod would be admitted, each tried out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from agent.admission.admission_node import Node
from agent.admission.admission_options import flag
from agent.admission.admission_variant import Variant, variants
from agent.admission.admit import Admission, PodAdmission, admit, classed, uid_of
from agent.admission.device_manager import Preference, lowest_first
from agent.admission.merge import NONE, POLICIES, SCOPES
from agent.admission.scope import pass_through
from agent.admission.snapshot import node_of
from agent.model.kubelet import KubeletSettings
from agent.model.pod import Pod
from agent.model.snapshot import Snapshot

WORK = 150_000
"""Steps for all pods together, some seconds. Each try costs one for every container of its pod and
every set of NUMA nodes or CPU of the machine; a usual pod takes a tenth of them at most."""

_WHOLE_CORES = "full-pcpus-only"


def with_changes(
    snapshot: Snapshot,
    admission: Admission,
    pods: Sequence[Pod],
    *,
    prefer: Preference = lowest_first,
) -> Admission:
    """Return *admission* with the changes that would have admitted its rejected pods.

    A pod of very many containers, or the last of very many pods, may be left without some, or any:
    the search ends after :data:`WORK` steps.

    Args:
        snapshot, pods, prefer: those that *admission* came from. Each change is tried on what the
            pods before the rejected one left.
        admission: of :func:`agent.admission.admit.admit`.
    """
    if not any(one.admitted is False for one in admission.pods):
        return admission
    node = node_of(snapshot, pods)
    search = _Search(prefer, WORK, _step(node))
    settings = search.settings(snapshot, pods)
    found: list[PodAdmission] = []
    for number, (one, pod) in enumerate(zip(admission.pods, pods, strict=True)):
        seen, uid = classed(snapshot, pod), uid_of(pod, number)
        if one.admitted is False:
            texts = (*search.amounts(node, seen, uid), *settings[number])
            found.append(replace(one, changes=texts))
            continue
        found.append(one)
        if one.admitted:
            node = pass_through(node, seen, uid, prefer).node
    return replace(admission, pods=tuple(found))


class _Search:
    """Tries changes until the work is done."""

    def __init__(self, prefer: Preference, work: int, step: int) -> None:
        self._prefer = prefer
        self._tries = work // step

    def amounts(self, node: Node, pod: Pod, uid: str) -> list[str]:
        """Return the changes of amounts that are enough, of each series the first."""
        found = []
        for series in variants(node, pod):
            fitting = self._first(node, series, uid)
            found += [fitting] if fitting is not None else []
            if self._tries < len(pod.containers):
                break
        return [variant.text for variant in sorted(found, key=lambda variant: variant.size)]

    def settings(self, snapshot: Snapshot, pods: Sequence[Pod]) -> list[list[str]]:
        """Return for each pod other settings of the kubelet under which it is admitted."""
        found: list[list[str]] = [[] for _ in pods]
        containers = sum(len(pod.containers) for pod in pods)
        for text, settings in _settings(snapshot):
            if not self._pays(containers):
                break
            changed = admit(replace(snapshot, kubelet=settings), pods, prefer=self._prefer)
            for number, one in enumerate(changed.pods):
                found[number] += [text] if one.admitted else []
        return found

    def _first(self, node: Node, series: Iterable[Variant], uid: str) -> Variant | None:
        for variant in series:
            if not self._pays(len(variant.pod.containers)):
                return None
            if pass_through(node, variant.pod, uid, self._prefer).refusal is None:
                return variant
        return None

    def _pays(self, containers: int) -> bool:
        """Return whether as many can still be tried, and count them."""
        can_pay = containers <= self._tries
        self._tries -= containers if can_pay else 0
        return can_pay


def _step(node: Node) -> int:
    """Return what one container costs."""
    sets = 1 << len(node.merger.nodes) if node.merger is not None else 1
    return sets + (len(node.cpus.layout.cpus) if node.cpus is not None else 0)


def _settings(snapshot: Snapshot) -> Iterator[tuple[str, KubeletSettings]]:
    """Yield other settings of the kubelet, those that give up least first."""
    settings = snapshot.kubelet
    assert settings is not None
    policy, scope = settings.topology_manager_policy, settings.topology_manager_scope
    if flag(settings.cpu_manager_options, _WHOLE_CORES):
        options = {**(settings.cpu_manager_options or {}), _WHOLE_CORES: "false"}
        text = f"the kubelet's cpuManagerPolicyOptions without {_WHOLE_CORES}"
        yield text, replace(settings, cpu_manager_options=options)
    for other in SCOPES if policy != NONE else ():
        if other != scope:
            text = f"the kubelet's topologyManagerScope {other} instead of {scope}"
            yield text, replace(settings, topology_manager_scope=other)
    for other in reversed(POLICIES[: POLICIES.index(policy)] if policy in POLICIES else ()):
        text = f"the kubelet's topologyManagerPolicy {other} instead of {policy}"
        yield text, replace(settings, topology_manager_policy=other)
