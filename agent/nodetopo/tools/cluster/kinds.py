"""Kinds of objects with levels and gangs, their API paths, and label selectors."""

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from nodetopo.errors import InputError
from nodetopo.tools.cluster.node import ClusterNode

# Which labels a person asks for, in the equality-based syntax of ``kubectl -l``.

_TERM = re.compile(
    r"(?P<negated>!)?(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
    r"(?:\s*(?P<operator>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*))?"
)


class Requirement(Struct, frozen=True, kw_only=True):
    """One term."""

    key: str
    value: str | None  # None accepts any value
    is_negated: bool  # must not match; a node without the label does not match, as with kubectl

    def __str__(self) -> str:
        if self.value is None:
            return f"{'!' if self.is_negated else ''}{self.key}"
        return f"{self.key}{'!=' if self.is_negated else '='}{self.value}"

    def matches(self, labels: Mapping[str, str]) -> bool:
        is_so = self.key in labels if self.value is None else labels.get(self.key) == self.value
        return is_so is not self.is_negated


class Selector(Struct, frozen=True):
    """Terms that must all hold; ``str()`` is the API's ``labelSelector``."""

    requirements: tuple[Requirement, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def select(self, nodes: Iterable[ClusterNode]) -> tuple[ClusterNode, ...]:
        """Return the *nodes* whose labels meet all terms, in their order."""
        return tuple(
            node
            for node in nodes
            if all(requirement.matches(node.labels) for requirement in self.requirements)
        )


def selector(text: str) -> Selector:
    """Return the selector *text*: ``k=v``, ``k!=v``, ``k``, ``!k``, joined by commas."""
    requirements = []
    for term in filter(None, (term.strip() for term in text.split(","))):
        match = _TERM.fullmatch(term)
        if match is None or (match["negated"] and match["operator"]):
            cure = "terms are KEY=VALUE, KEY!=VALUE, KEY and !KEY, joined by commas"
            raise InputError(f"not a selector: {term!r}", cure)
        is_negated = bool(match["negated"]) or match["operator"] == "!="
        requirements.append(
            Requirement(key=match["key"], value=match["value"], is_negated=is_negated)
        )
    return Selector(tuple(requirements))


class ObjectKind(Struct, frozen=True, kw_only=True):
    """One kind of object."""

    name: str  # scheduler and kind, as people speak of it
    group: str
    versions: tuple[str, ...]  # newest first; the first that is served is asked
    kind: str
    plural: str

    def paths(self) -> Iterator[str]:
        """Yield the paths for listing objects of all namespaces, newest version first."""
        return (f"/apis/{self.group}/{version}/{self.plural}" for version in self.versions)


KAI_TOPOLOGY = ObjectKind(
    name="KAI Topology",
    group="kai.scheduler",
    versions=("v1alpha1",),
    kind="Topology",
    plural="topologies",
)


KUEUE_TOPOLOGY = ObjectKind(
    name="Kueue Topology",
    group="kueue.x-k8s.io",
    versions=("v1beta2", "v1beta1", "v1alpha1"),
    kind="Topology",
    plural="topologies",
)


HYPER_NODE = ObjectKind(
    name="Volcano HyperNode",
    group="topology.volcano.sh",
    versions=("v1alpha1",),
    kind="HyperNode",
    plural="hypernodes",
)


KAI_POD_GROUP = ObjectKind(
    name="KAI PodGroup",
    group="scheduling.run.ai",
    versions=("v2alpha2",),
    kind="PodGroup",
    plural="podgroups",
)


POD_GROUP = ObjectKind(
    name="PodGroup",
    group="scheduling.k8s.io",
    versions=("v1", "v1beta1", "v1alpha3", "v1alpha2"),
    kind="PodGroup",
    plural="podgroups",
)


WORKLOAD = ObjectKind(
    name="Kueue Workload",
    group="kueue.x-k8s.io",
    versions=("v1beta2", "v1beta1"),
    kind="Workload",
    plural="workloads",
)


VOLCANO_POD_GROUP = ObjectKind(
    name="Volcano PodGroup",
    group="scheduling.volcano.sh",
    versions=("v1beta1",),
    kind="PodGroup",
    plural="podgroups",
)


LEADER_WORKER_SET = ObjectKind(
    name="LeaderWorkerSet",
    group="leaderworkerset.x-k8s.io",
    versions=("v1",),
    kind="LeaderWorkerSet",
    plural="leaderworkersets",
)


TOPOLOGIES = (KAI_TOPOLOGY, KUEUE_TOPOLOGY)
"""Those whose levels are label keys."""


OF_LEVELS = (*TOPOLOGIES, HYPER_NODE)
"""Kinds with levels and without gangs."""


KINDS = (
    *OF_LEVELS,
    KAI_POD_GROUP,
    POD_GROUP,
    WORKLOAD,
    VOLCANO_POD_GROUP,
    LEADER_WORKER_SET,
)
"""Sources: KAI v0.12.0 deployments/kai-scheduler/crds; Kueue v0.19.2 config/components/crd/bases;
Volcano v1.15.1 config/crd/volcano/bases; LWS v0.9.0 config/crd/bases; k8s.io/api v0.36.3 and
v0.37.0 scheduling. Volcano makes a PodGroup of each of its Jobs, so Jobs need not be asked.
"""


def kind_of(api_version: str, kind: str) -> ObjectKind | None:
    """Return the kind of an object with *api_version* (``group/version``); ``None`` if another."""
    wanted = (api_version.rpartition("/")[0], kind)
    return next((each for each in KINDS if (each.group, each.kind) == wanted), None)
