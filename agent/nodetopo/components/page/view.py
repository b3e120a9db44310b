"""The rows of the status page, made from the state of the daemon.

Names of pods are left out here, unless a setting allows them, so that no rendering can show them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby

from msgspec import Struct, field

from nodetopo.admission.sizes import MOST_SIZES, SizeAdmission, admitted_sizes
from nodetopo.checks.engine import Report, Result
from nodetopo.checks.rule import Area, Finding, Rule, Verdict
from nodetopo.components.page.rows import (
    AllocationRow,
    FindingRow,
    GpuRow,
    ReportRow,
    ResourceRow,
    SizeRow,
    Summary,
    View,
    XidRow,
)
from nodetopo.components.page.state import PageState
from nodetopo.deviceplugin.allocation_log import LoggedAllocation
from nodetopo.kernel.shown import ListedPods
from nodetopo.model.gpu import Gpu
from nodetopo.model.snapshot import Snapshot
from nodetopo.model.xid import xid
from nodetopo.rdma.rails import nearest_by_gpu
from nodetopo.topology.affinity import hca_closeness
from nodetopo.topology.matrix import word
from nodetopo.topology.presence import missing_text

MOST_FINDINGS = 5
"""Listed findings of one check; a check of links can have a hundred similar ones."""

MOST_XIDS = 50
"""Rows of XIDs."""

WITHHELD = "withheld: it names a pod (`status-page-pods: true` shows it)"

_ABOUT_PODS = frozenset({Area.QOS, Area.PODS, Area.ALIGNMENT})
"""Areas whose findings name pods, their containers, or their processes."""

_REPLICA = re.compile(r"::[0-9]+$")
"""The suffix of a replica's id after its device's id."""

PodKey = tuple[str, str]
"""Namespace and name."""


class PodNumbers(Struct):
    """Gives each pod a number that it keeps while it runs; a new pod takes the lowest free one."""

    _numbers: dict[PodKey, int] = field(default_factory=dict)

    def of(self, pods: Iterable[PodKey]) -> Mapping[PodKey, int]:
        """Return the number of each of *pods*, and forget all others."""
        running = sorted(set(pods))
        kept = {pod: number for pod, number in self._numbers.items() if pod in running}
        free = iter(sorted(set(range(1, len(running) + 1)) - set(kept.values())))
        for pod in running:
            if pod not in kept:
                kept[pod] = next(free)
        self._numbers = kept
        return dict(kept)


def view(state: PageState, numbers: PodNumbers) -> View:
    """Return the content of the page for *state*."""
    node = state.snapshot
    pods = _Pods.of(state.pods, state, numbers)
    gpus = () if node is None else tuple(_gpu_rows(node, state, pods))
    nvml = state.nvml
    problem = None
    if nvml.trouble is not None:
        problem = nvml.cause or nvml.trouble.value
        problem += f" — {nvml.cure}" if nvml.cure else ""
    return View(
        node=state.node,
        version=state.version,
        simulated=state.simulated,
        scanned_at=moment(state.scanned_at),
        pods_listed_at=None if state.pods is None else moment(state.pods.at),
        is_ready=state.not_ready is None,
        not_ready=tuple((state.not_ready or "").splitlines()),
        summary=_summary(state, gpus, pods),
        nvml_problem=problem,
        settings=state.settings,
        gpus_missing=None if node is None else missing_text(node),
        gpus=gpus,
        findings=tuple(
            row
            for name, report in state.reports.items()
            for row in _finding_rows(name, report, pods)
        ),
        reports=tuple(_report_row(name, report, pods) for name, report in state.reports.items()),
        kubelet=_kubelet(state),
        sizes=tuple(_size_rows(state)),
        allocations=tuple(_allocation_row(allocation, node) for allocation in state.allocations),
        resources=tuple(
            ResourceRow(
                name=resource.name,
                healthy=resource.healthy,
                unhealthy=resource.unhealthy,
                registered=resource.is_registered,
                socket=resource.endpoint,
                problem=resource.problem,
                placement=resource.placement,
                allocations=resource.allocations,
            )
            for resource in state.resources
        ),
        refusals=state.refusals,
        xids=tuple(_xid_rows(state)),
        labels=None if state.labels is None else dict(sorted(state.labels.items())),
        label_outputs=state.label_outputs,
    )


def _summary(state: PageState, gpus: Sequence[GpuRow], pods: "_Pods") -> Summary:
    states = Counter(row.state for row in gpus)
    measured = state.pods_measured
    # A check that several reports make counts once, by its worst verdict.
    worst = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)
    verdicts: dict[str, Verdict] = {}
    for report in state.reports.values():
        for result in report.results:
            code, verdict = result.rule.code, result.verdict
            if verdict not in worst or result.waived is not None:
                continue
            verdicts[code] = min(verdicts.get(code, verdict), verdict, key=worst.index)
    checks = Counter(verdicts.values()) if state.reports else None
    return Summary(
        gpus=None if state.snapshot is None else len(gpus),
        healthy=states["healthy"],
        degraded=states["degraded"],
        unhealthy=states["unhealthy"],
        unknown=states["unknown"],
        pods=None if pods.holders is None else len(pods.numbers),
        misaligned=None if measured is None else measured.get("misaligned", 0),
        unmeasured=None if measured is None else measured.get("unknown", 0),
        failed=None if checks is None else checks[Verdict.FAIL],
        warned=None if checks is None else checks[Verdict.WARN],
        undecided=None if checks is None else checks[Verdict.UNKNOWN],
    )


def moment(at: datetime | None) -> str | None:
    """Return *at* to the second; ``None`` for none."""
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


# The holders of GPUs.


class _Pods(Struct, frozen=True):
    """The pods of the node: the holders of each GPU, and their names on the page."""

    # GPU id → its pods → devices of it that each has.
    holders: Mapping[str, Mapping[PodKey, int]] | None
    words: Mapping[PodKey, str]  # the name of each pod on the page
    numbers: Mapping[PodKey, int]  # of each pod that has a GPU
    names: re.Pattern[str] | None  # matches texts that reveal a pod; None if names can be shown

    @classmethod
    def of(cls, listed: ListedPods | None, state: PageState, numbers: PodNumbers) -> "_Pods":
        pods = () if listed is None else listed.snapshot.pods or ()
        keys = [(pod.namespace, pod.name) for pod in pods]
        names = None
        if not state.shows_pods:
            secret = state.pod_names | {
                text for pod in pods for text in (pod.name, pod.uid) if text
            }
            alternatives = "|".join(map(re.escape, sorted(secret, key=len, reverse=True)))
            names = re.compile(rf"(?<![\w.-])(?:{alternatives or '(?!)'})(?![\w-])")
        if listed is None or listed.snapshot.pods is None or state.snapshot is None:
            return cls(None, {}, {}, names)
        owners = gpus_by_id(state.snapshot)
        holders: dict[str, dict[PodKey, int]] = {}
        for pod in pods:
            for container in pod.containers:
                for given in container.devices or ():
                    for name in given.ids:
                        gpu = owners.get(_REPLICA.sub("", name))
                        if gpu is not None:
                            of_gpu = holders.setdefault(gpu, {})
                            key = (pod.namespace, pod.name)
                            of_gpu[key] = of_gpu.get(key, 0) + 1
        numbered = numbers.of(key for of_gpu in holders.values() for key in of_gpu)
        words = {key: f"pod {number}" for key, number in numbered.items()}
        if state.shows_pods:
            words = {key: "/".join(key) for key in keys}
        return cls(holders, words, numbered, names)

    def gives_away(self, *texts: str) -> bool:
        """Return whether any of *texts* names a pod that must be hidden."""
        return self.names is not None and any(self.names.search(text) for text in texts)


def gpus_by_id(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the id of the GPU of each device id: GPUs, and MIG devices."""
    owners = {gpu.id: gpu.id for gpu in snapshot.gpus}
    for gpu in snapshot.gpus:
        for instance in () if gpu.mig is None else gpu.mig.instances:
            if instance.uuid is not None:
                owners[instance.uuid] = gpu.id
    return owners


def _gpu_rows(node: Snapshot, state: PageState, pods: _Pods) -> Iterator[GpuRow]:
    nearest, distances = nearest_by_gpu(node), hca_closeness(node)
    for gpu in node.gpus:
        near = None if nearest is None else sorted(nearest.get(gpu.index, ()))
        if near == [] and node.hcas:
            near = None  # there are HCAs, of unknown distance
        names = None if near is None else tuple((node.hcas or ())[at].name for at in near)
        distance = word(distances[gpu.index, near[0]]) if near else None
        yield _gpu_row(gpu, state, pods, (names, distance))


def _gpu_row(
    gpu: Gpu, state: PageState, pods: _Pods, hcas: tuple[tuple[str, ...] | None, str | None]
) -> GpuRow:
    verdict = None if state.health is None else state.health.get(gpu.id)
    reason = None if verdict is None else verdict.said or verdict.reason
    if gpu.is_lost:
        word, reason = "unhealthy", reason or "the driver reports the GPU as lost"
    elif verdict is not None and not verdict.is_healthy:
        word = "unhealthy"
    elif verdict is not None and verdict.is_degraded:
        word = "degraded"
    elif state.health is None:
        word, reason = "unknown", "`health-checks` is off"
    elif state.nvml.trouble is not None:
        word, reason = "unknown", "NVML does not answer; this is the last reading"
    else:
        word = "healthy"
    held = None if pods.holders is None else pods.holders.get(gpu.id, {})
    only = next(iter(held)) if held and len(held) == 1 else None
    return GpuRow(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        product=gpu.product,
        state=word,
        reason=reason,
        holders=None if held is None else tuple(sorted(pods.words[key] for key in held)),
        numa_node=gpu.numa_node,
        pci=None if gpu.pci is None else str(gpu.pci),
        nearest_hcas=hcas[0],
        hca_distance=hcas[1],
        number=None if only is None else pods.numbers[only],
        held_parts=sum(held.values()) if held else 0,
        parts=len(gpu.mig.instances) if gpu.mig is not None and gpu.is_divided else 0,
    )


# What is wrong.


def _finding_rows(name: str, report: Report, pods: _Pods) -> Iterator[FindingRow]:
    for verdict in (Verdict.FAIL, Verdict.WARN):
        for result in report.results:
            if result.verdict is verdict and result.waived is None:
                yield _finding_row(name, result, pods)


def _finding_row(name: str, result: Result, pods: _Pods) -> FindingRow:
    rule = result.rule
    is_about_pods = isinstance(rule, Rule) and rule.area in _ABOUT_PODS

    def shown(finding: Finding) -> tuple[str, str, str]:
        texts = (finding.subject, finding.observed, finding.expected)
        if pods.names is not None and (is_about_pods or pods.gives_away(*texts)):
            return ("", "", "")
        return texts

    return FindingRow(
        report=name,
        code=rule.code,
        verdict=result.verdict.value,
        claim=rule.claim,
        why=rule.why,
        remedy=result.remedy,
        reference=rule.reference,
        page=rule.url,
        findings=tuple(map(shown, result.findings[:MOST_FINDINGS])),
        more=max(0, len(result.findings) - MOST_FINDINGS),
    )


def _report_row(name: str, report: Report, pods: _Pods) -> ReportRow:
    summary = report.summary
    missing = []
    for one in report.missing:
        inputs, reasons = ", ".join(one.inputs), "; ".join(one.reasons)
        if pods.gives_away(inputs, reasons):
            inputs, reasons = "an input about a pod", WITHHELD
        missing.append((inputs, reasons, ", ".join(one.checks)))
    return ReportRow(
        report=name,
        passed=summary.passed,
        warned=summary.warned,
        failed=summary.failed,
        unknown=summary.unknown,
        waived=summary.waived,
        skipped=summary.skipped,
        missing=tuple(missing),
    )


# What fits.


def _kubelet(state: PageState) -> str | None:
    node = state.pods.snapshot if state.pods is not None else state.snapshot
    settings = None if node is None else node.kubelet
    if settings is None or settings.topology_manager_policy is None:
        return None
    policy, scope = settings.topology_manager_policy, settings.topology_manager_scope
    return f"Topology Manager policy {policy}" + (f", scope {scope}" if scope else "")


def _size_rows(state: PageState) -> Iterator[SizeRow]:
    """Yield the answers for each resource, with neighbouring sizes merged."""
    for resource in state.resources:
        count = resource.healthy + resource.unhealthy
        sizes = range(1, min(count, MOST_SIZES) + 1)
        if state.pods is None:
            answers: Iterable[SizeAdmission] = (
                SizeAdmission(size=size, admitted=None, missing=("the running pods",))
                for size in sizes
            )
        else:
            answers = admitted_sizes(state.pods.snapshot, resource.name, sizes)
        for (admitted, text), run in groupby(answers, lambda one: (one.admitted, _answer(one))):
            alike = [row.size for row in run]
            yield SizeRow(
                resource=resource.name,
                first=alike[0],
                last=alike[-1],
                admitted=admitted,
                text=text,
            )


def _answer(one: SizeAdmission) -> str:
    if one.admitted is None:
        return f"unknown without {', '.join(one.missing)}"
    if not one.admitted:
        return one.reason or "rejected"
    if one.numa_nodes is None:
        return "from any NUMA node"
    plural = "" if len(one.numa_nodes) == 1 else "s"
    return f"from NUMA node{plural} {', '.join(map(str, one.numa_nodes))}"


# What happened.


def _allocation_row(one: LoggedAllocation, node: Snapshot | None) -> AllocationRow:
    owners = {} if node is None else gpus_by_id(node)
    names = {} if node is None else {gpu.id: gpu.name for gpu in node.gpus}
    devices = []
    for name in one.devices:
        gpu = owners.get(bare := _REPLICA.sub("", name))
        label = names.get(gpu or "", name)
        devices.append(
            label if gpu in (None, name) else f"{label} ({bare if bare != gpu else name})"
        )
    return AllocationRow(
        at=moment(one.at) or "",
        resource=one.resource,
        devices=", ".join(devices),
        by="nodetopo" if one.is_ours else "the kubelet",
        text=one.said or "no reasons are known",
    )


def _xid_rows(state: PageState) -> Iterator[XidRow]:
    gpus = () if state.snapshot is None else state.snapshot.gpus
    names = {gpu.id: gpu.name for gpu in gpus}
    for (uuid, code), count in sorted(state.xid_counts.items())[:MOST_XIDS]:
        meaning = xid(code)
        yield XidRow(
            gpu=names.get(uuid, uuid),
            code=code,
            count=count,
            meaning=meaning.meaning,
            action=meaning.action or "",
        )
