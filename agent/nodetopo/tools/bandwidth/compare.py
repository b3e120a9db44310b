"""Compares measured figures with expected ones, and finds the checks that explain shortfalls.

A figure is compared with the machine as designed (:func:`nodetopo.tools.bandwidth.as_built.sound`),
so that a link with lost lanes causes a shortfall instead of a lower expectation.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.measured import Measured, Operation
from nodetopo.checks.engine import Report, Result, evaluate
from nodetopo.checks.rule import Finding, Verdict
from nodetopo.checks.waivers import NO_OVERRIDES, Overrides
from nodetopo.errors import InputError
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.bandwidth import published
from nodetopo.tools.bandwidth.as_built import sound
from nodetopo.tools.bandwidth.expectation import Expected, both_ways, unknown
from nodetopo.tools.bandwidth.expected import Model
from nodetopo.tools.bandwidth.log import Figure, Kind, Log, LoggedGpu
from nodetopo.tools.bandwidth.operation import has_ratio, operation_of
from nodetopo.tools.node_rules import node_rules

LEAST_SIZE: Mapping[Kind, int] = MappingProxyType(
    {Kind.SET: 256 << 20, Kind.PAIR: 16 << 20, Kind.GPU_HCA: 64 << 10, Kind.HCA: 64 << 10}
)
"""Bytes of a message from which a low figure shows a lack of bandwidth rather than latency
(nccl-tests doc/PERFORMANCE.md, "Time"). A judgement, with perftest's default of 64 KiB; a gate that
was published for a larger message says so itself (``Expected.gate_size``)."""

_ALL = ("GPU-001", "GPU-005", "PCI-002", "GDR-002")
_NVLINK = ("NVL-001", "NVL-002", "NVL-003", "NVL-004", "NVL-005", "NVL-006")
_PCIE = ("PCI-001", "PCI-003", "PCI-006", "PCI-007", "NUM-001")
_PEERS = ("PCI-004", "PCI-005")
_WIRE = ("RDM-001", "RDM-003", "RDM-004", "RDM-006", "RDM-008", "RDM-010", "RDM-011", "NUM-002")

EXPLAIN: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {
        Kind.PAIR: (*_ALL, *_NVLINK, *_PCIE, *_PEERS, "MIG-003"),
        Kind.SET: (*_ALL, *_NVLINK, *_PCIE, *_PEERS, "MIG-003"),
        Kind.HOST: (*_ALL, *_PCIE, "KRN-003", "KRN-007"),
        Kind.GPU_HCA: (*_ALL, *_PCIE, "PCI-005", *_WIRE, "GDR-001", "RDM-002", "RDM-005"),
        Kind.HCA: (*_WIRE, "PCI-006", "KRN-007", "KRN-010"),
    },
)
"""Codes of the checks whose failure takes bandwidth from a measurement of each kind."""

NETWORK = ("RDM-001", "RDM-002", "RDM-003", "RDM-004", "RDM-005", "RDM-008", "GDR-001", "PCI-005")
"""Those that count too where ranks of other hosts took part."""


class Compared(Struct, frozen=True, kw_only=True):
    """A figure and its expectation."""

    figure: Figure
    gpus: tuple[Gpu, ...]  # of this node, in the log's order; empty if unknown
    hca: Hca | None  # None for figures without one
    expected: Expected  # of the machine as designed
    now: Expected | None  # of its current state, if lower; None if the same
    verdict: Verdict  # UNKNOWN without a comparison
    reason: str | None  # for UNKNOWN, or a limit of the verdict
    checks: tuple[str, ...] = ()  # codes that explain a shortfall, FAIL before WARN before remarks
    host: str | None = None  # where it was measured, if the log has figures of several hosts

    def is_elsewhere(self, node: str | None) -> bool:
        """Return whether it was measured on another host than *node*."""
        return self.host is not None and not _is_host(self.host, node)


class Explanation(Struct, frozen=True, kw_only=True):
    """A check with the findings that name devices that fell short."""

    result: Result  # as of the whole node
    findings: tuple[Finding, ...]  # about these devices, or the node as a whole


class Comparison(Struct, frozen=True, kw_only=True):
    """All figures of a log, compared."""

    figures: tuple[Compared, ...]
    explanations: tuple[Explanation, ...]  # checks with findings, each once
    report: Report | None  # of the checks that ran, for missing inputs; None without a shortfall


def compare(
    log: Log,
    snapshot: Snapshot,
    *,
    gpus: Sequence[Gpu] = (),
    hcas: Sequence[Hca] = (),
    measured: Measured | None = None,
    table: str = "bandwidth table",
    operation: Operation = Operation.ALL_REDUCE,
    terms: Overrides = NO_OVERRIDES,
) -> Comparison:
    """Compare the figures of *log* with the expectations of *snapshot*.

    Args:
        gpus: the GPUs of the log in its order, where it does not name them by PCI address.
        hcas: the HCAs of its runs, one for all or one each.
        operation: the operation that its sets were measured by.
        terms: waivers and severities of checks.

    Raises:
        InputError: *gpus* or *hcas* do not fit the log.
    """
    built = Model(sound(snapshot), measured, table, operation)
    current = Model(snapshot, measured, table, operation)
    names = _Names(snapshot, log, gpus, hcas)
    several = len({host for figure in log.figures for host in figure.hosts}) > 1
    compared = [
        replace(
            _compared(figure, built, current, names),
            host=figure.hosts[0] if several and len(figure.hosts) == 1 else None,
        )
        for figure in log.figures
    ]
    short = [figure for figure in compared if figure.verdict is not Verdict.PASS]
    if not short:
        return Comparison(figures=tuple(compared), explanations=(), report=None)
    wanted = {code for figure in short for code in _codes(figure)}
    report = evaluate(snapshot, [rule for rule in node_rules() if rule.code in wanted], terms)
    order = [result.rule.code for result in _by_weight(report.results)]
    evidence = _Evidence(snapshot, report)
    explained: list[Compared] = []
    explanations: dict[str, dict[Finding, None]] = {}
    for one in compared:
        is_explained = one.verdict is not Verdict.PASS and not one.is_elsewhere(snapshot.node)
        found = evidence.about(one) if is_explained else {}
        for code, findings in found.items():
            explanations.setdefault(code, {}).update(dict.fromkeys(findings))
        explained.append(replace(one, checks=tuple(sorted(found, key=order.index))))
    results = {result.rule.code: result for result in report.results}
    return Comparison(
        figures=tuple(explained),
        explanations=tuple(
            Explanation(result=results[code], findings=tuple(explanations[code]))
            for code in order
            if code in explanations
        ),
        report=report,
    )


def _codes(result: Compared) -> tuple[str, ...]:
    codes = EXPLAIN[result.figure.kind]
    return (*codes, *NETWORK) if len(result.figure.hosts) > 1 else codes


_WEIGHT = (Verdict.FAIL, Verdict.WARN, Verdict.PASS, Verdict.UNKNOWN)


def _by_weight(results: Iterable[Result]) -> list[Result]:
    """Return *results*, failures first; a remark counts as a pass."""
    return sorted(results, key=lambda result: _WEIGHT.index(result.verdict))


class _Evidence:
    """The findings of a report, by the devices that they name."""

    def __init__(self, snapshot: Snapshot, report: Report) -> None:
        self._hcas = snapshot.hcas or ()
        devices: list[Gpu | Hca] = [*snapshot.gpus, *self._hcas]
        known = {name for device in devices for name in _names_of(device)}
        known |= {str(bridge.address) for bridge in snapshot.bridges or ()}
        self._findings = [
            (result.rule.code, finding, known & _words(finding))
            for result in report.results
            if result.waived is None and result.skipped is None
            for finding in result.findings
        ]

    def about(self, result: Compared) -> dict[str, list[Finding]]:
        """Return the findings that name a device of *result*, a bridge above, or no device."""
        hcas = [result.hca] if result.hca is not None else []
        if len(result.figure.hosts) > 1:
            hcas = list(self._hcas)
        devices: list[Gpu | Hca] = [*result.gpus, *hcas]
        ours = {name for device in devices for name in _names_of(device)}
        ours |= {str(hop) for device in devices if device.path for hop in device.path.hops}
        wanted = _codes(result) if devices else ()
        by_code: dict[str, list[Finding]] = {}
        for code, finding, named in self._findings:
            if code in wanted and (not named or named & ours):
                by_code.setdefault(code, []).append(finding)
        return by_code


def _words(finding: Finding) -> set[str]:
    return set(re.split(r"[\s,;()]+", f"{finding.subject} {finding.observed}"))


def _names_of(device: Gpu | Hca) -> tuple[str, ...]:
    own = (device.name, *((str(device.pci),) if device.pci else ()))
    return (*own, device.uuid) if isinstance(device, Gpu) and device.uuid else own


def _compared(figure: Figure, built: Model, current: Model, names: "_Names") -> Compared:
    gpus, hca, reason = names.of(figure)
    if gpus and not figure.gpus and figure.ratio is not None:  # without ranks, --gpus says how many
        if has_ratio(figure.ratio, len(gpus)):
            told = figure.columns and figure.columns.operation(figure.ratio, len(gpus))
            figure = replace(figure, test=told or figure.test)
        else:
            reason = (
                f"the ratio of busbw and algbw is {figure.ratio:.2f}, which it is not among "
                f"{len(gpus)} GPUs: name all of the test"
            )
            gpus = ()
    if reason is None and len(figure.hosts) > 1:
        reason = (
            f"ranks of {len(figure.hosts)} hosts took part: the network decides, which a node does "
            "not see"
        )
    expected = unknown(reason) if reason is not None else _expectation(built, figure, gpus, hca)
    now = None
    if expected.low is not None:
        found = _expectation(current, figure, gpus, hca)
        now = None if found.is_like(expected) else found
    verdict, why = _verdict(figure, expected)
    return Compared(
        figure=figure,
        gpus=gpus,
        hca=hca,
        expected=expected,
        now=now,
        verdict=verdict,
        reason=why,
    )


def _expectation(model: Model, figure: Figure, gpus: tuple[Gpu, ...], hca: Hca | None) -> Expected:
    match figure.kind:
        case Kind.PAIR:
            return model.pair(*gpus)
        case Kind.SET:
            return _of_set(model, figure, gpus)
        case Kind.HOST:
            return model.to_host(*gpus)
        case _ if hca is None:
            return unknown("the log names no HCA")
        case Kind.GPU_HCA:
            one = model.to_hca(gpus[0], hca)
            return both_ways(one) if figure.is_both_ways else one
        case Kind.HCA:
            one = model.of_hca(hca)
            return both_ways(one) if figure.is_both_ways else one


def _of_set(model: Model, figure: Figure, gpus: tuple[Gpu, ...]) -> Expected:
    if len(gpus) == 1:
        return model.of_set(gpus)
    operation = operation_of(figure.test)
    if operation is None:
        return unknown("the log does not say which operation it measured: keep its command line")
    one = model.of_set(gpus, operation, figure.algorithms.of(operation))
    return replace(one, by_rings=None) if figure.algorithms.has_nvls else one


def _verdict(figure: Figure, expected: Expected) -> tuple[Verdict, str | None]:
    """Return the verdict and its reason.

    Below the gate a figure fails; inside the expected range it passes; in between it warns up to
    1.05 of the gate, as Azure's checks do. Where the range is wide, one below the default warns.
    A gate is for the messages that it was published for: smaller ones can meet it, but not fail.
    """
    if figure.is_wrong:
        return Verdict.FAIL, "wrong data arrived"
    if expected.low is None or expected.gate is None:
        return Verdict.UNKNOWN, expected.reason
    value = figure.gb_per_s
    if value >= expected.low:
        is_low = expected.is_wide and expected.default is not None and value < expected.default
        is_gated = value >= expected.gate
        if is_gated and not is_low:
            return Verdict.PASS, None
        if is_gated:
            return Verdict.WARN, "below the default of a wide range"
    least = LEAST_SIZE.get(figure.kind)
    if figure.size is not None and least is not None and figure.size < least:
        largest = f"{_size(figure.size)} is the largest message"
        return Verdict.UNKNOWN, f"{largest}, of which latency takes a share; test {_size(least)}"
    if (gate := expected.gate_of(figure.size)) != expected.gate:
        return _of_smaller(figure, expected, gate)
    if value < expected.gate:
        if expected.by_rings and expected.by_rings.low <= value <= expected.by_rings.high:
            why = "as much as rings carry, and the log does not say whether NVLS was on"
            return Verdict.UNKNOWN, f"{why}: test with NCCL_DEBUG=INFO"
        return Verdict.FAIL, None
    if value < expected.gate * published.WARN_SHARE:
        return Verdict.WARN, None
    return Verdict.PASS, None


def _of_smaller(
    figure: Figure, expected: Expected, floor: float | None
) -> tuple[Verdict, str | None]:
    """Return the verdict where the largest message is smaller than those of the gate."""
    if expected.gate is not None and figure.gb_per_s >= expected.gate:
        return Verdict.PASS, None
    if floor is not None and figure.gb_per_s < floor:
        return Verdict.FAIL, None
    if figure.size is None or expected.gate_size is None:
        return Verdict.UNKNOWN, None
    largest, wanted = _size(figure.size), _size(expected.gate_size)
    return Verdict.UNKNOWN, f"{largest} is the largest message; what fails is known of {wanted}"


def _size(size: int) -> str:
    """Return *size* bytes as nccl-tests takes them, e.g. ``16 GiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} bytes"


class _Names:
    """The devices that a log means."""

    def __init__(
        self, snapshot: Snapshot, log: Log, gpus: Sequence[Gpu], hcas: Sequence[Hca]
    ) -> None:
        self._snapshot = snapshot
        self._gpus = tuple(gpus)
        self._hcas = {hca.name: hca for hca in snapshot.hcas or ()}
        self._given = tuple(hcas)
        runs = [figure for figure in log.figures if figure.kind in (Kind.HCA, Kind.GPU_HCA)]
        if hcas and not runs:
            raise InputError("--hca is for logs of perftest", "leave it out")
        if len(hcas) > 1 and len(hcas) != len(runs):
            cause = f"--hca {len(hcas)} times for a log of {len(runs)} runs"
            raise InputError(cause, "give it once, or once for each run")
        self._runs = runs

    def of(self, figure: Figure) -> tuple[tuple[Gpu, ...], Hca | None, str | None]:
        """Return the GPUs and the HCA of *figure*, or the reason why they are unknown."""
        hca = self._hca(figure)
        if figure.kind in (Kind.HCA, Kind.GPU_HCA) and hca is None:
            if figure.hca is None:
                return (), None, "the log names no HCA: name it with --hca"
            return (), None, f"this node has no HCA {figure.hca}: name it with --hca"
        if figure.lacks is not None:
            return (), hca, figure.lacks
        if figure.kind is Kind.SET and not figure.gpus and not self._gpus:
            return (), hca, "the log names no GPU: name them with --gpus"
        logged = self._of_this_node(figure)
        if logged is None:
            hosts = ", ".join(figure.hosts)
            return (), hca, f"ranks on {hosts}: none of them is {self._snapshot.node or 'named'}"
        if figure.kind is Kind.HCA and self._gpus:
            return self._gpus[:1], hca, None
        if self._gpus:
            return *self._by_order(figure, logged), None
        found = [self._by_address(gpu) for gpu in logged]
        gpus = tuple(gpu for gpu in found if gpu is not None)
        if len(gpus) == len(logged):
            if len({gpu.index for gpu in gpus}) < len(gpus):
                return (), hca, "several ranks share a GPU"
            return gpus, hca, None
        missing = logged[found.index(None)]
        if missing.bus is None:
            which = f"number {missing.place}" if missing.host is None else f"that of {missing.name}"
            why = f"the log does not say which GPU is {which}: name them with --gpus"
        elif len(logged) > 1 and len({gpu.bus for gpu in logged}) == 1:
            why = "all ranks show one PCI address: name their GPUs with --gpus"
        else:
            why = f"{missing.name} is on a GPU that this node does not have: {_address(missing)}"
        return (), hca, why

    def _by_order(
        self, figure: Figure, logged: tuple[LoggedGpu, ...]
    ) -> tuple[tuple[Gpu, ...], Hca | None]:
        """Return the GPUs of ``--gpus``: for ranks by their order, else by the log's numbers."""
        hca = self._hca(figure)
        if figure.kind is Kind.GPU_HCA:
            return self._gpus[:1], hca
        if not logged:
            return self._gpus, hca
        if logged[0].host is not None:
            if len(self._gpus) != len(logged):
                cause = f"--gpus names {len(self._gpus)} GPUs, the log has {len(logged)} ranks here"
                raise InputError(cause, "name the GPU of each rank, in their order")
            return self._gpus, hca
        highest = max(gpu.place for gpu in logged)
        if highest >= len(self._gpus):
            cause = f"--gpus names {len(self._gpus)} GPUs, the log has number {highest}"
            raise InputError(cause, "name the GPU of each number, from 0 on")
        return tuple(self._gpus[gpu.place] for gpu in logged), hca

    def _hca(self, figure: Figure) -> Hca | None:
        if figure.kind not in (Kind.HCA, Kind.GPU_HCA):
            return None
        if len(self._given) > 1:
            return self._given[self._runs.index(figure)]
        if self._given:
            return self._given[0]
        return None if figure.hca is None else self._hcas.get(figure.hca)

    def _of_this_node(self, figure: Figure) -> tuple[LoggedGpu, ...] | None:
        """Return the GPUs on this node; ``None`` where no host of several is known to be it."""
        if len(figure.hosts) < 2:
            return figure.gpus
        node = self._snapshot.node
        return tuple(gpu for gpu in figure.gpus if _is_host(gpu.host, node)) or None

    def _by_address(self, logged: LoggedGpu) -> Gpu | None:
        """Return the GPU at the address of *logged*; ``None`` if there is none, or several."""
        if logged.bus is None:
            return None

        def fits(pci: PciAddress | None) -> bool:
            return (
                pci is not None
                and pci.bus == logged.bus
                and logged.domain in (None, pci.domain)
                and logged.device in (None, pci.device)
            )

        found = [gpu for gpu in self._snapshot.gpus if fits(gpu.pci)]
        return found[0] if len(found) == 1 else None


def _is_host(host: str | None, node: str | None) -> bool:
    """Return whether *host*, with its domain or without, is *node*."""
    return bool(host and node) and str(host).split(".")[0] == str(node).split(".")[0]


def _address(logged: LoggedGpu) -> str:
    text = f"{logged.bus:02x}"
    if logged.device is not None:
        text += f":{logged.device:02x}"
    return text if logged.domain is None else f"{logged.domain:04x}:{text}"
