"""A rule on the rates of ports: HCAs of one model, in one node, are wired alike."""

from collections import defaultdict
from collections.abc import Mapping

from agent.checks.inputs import Inputs, first_of, no_adapters, own_adapters, unknown_of
from agent.checks.rdma_ports import NamedPort, active_ports, missing_states
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.hca import Hca, HcaPort
from agent.model.pci import PciFunction
from agent.model.snapshot import Snapshot

Model = tuple[str | None, ...]
"""What ports of one model have in common."""


def _model(hca: Hca, port: HcaPort) -> Model:
    function = hca.function or PciFunction()
    return (
        None if hca.kind is None else hca.kind.value,
        None if port.layer is None else port.layer.value,
        hca.board_id,
        function.vendor,
        function.device,
        function.subsystem_vendor,
        function.subsystem_device,
    )


def _alike(snapshot: Snapshot) -> Mapping[Model, list[NamedPort]]:
    """Return the active ports of each model that several HCAs are of."""
    found: dict[Model, list[NamedPort]] = defaultdict(list)
    for name, hca, port in active_ports(snapshot):
        if _has_model(hca):
            found[_model(hca, port)].append((name, hca, port))
    return {
        model: ports for model, ports in found.items() if len({hca.name for _, hca, _ in ports}) > 1
    }


def _has_model(hca: Hca) -> bool:
    return hca.board_id is not None or hca.function is not None


def _slower(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=name,
            observed=f"{port.rate_gbps:g} Gb/s",
            expected=f"{fastest:g} Gb/s, as its peers of the same model have",
        )
        for ports in _alike(snapshot).values()
        for fastest in (max(port.rate_gbps or 0 for _, _, port in ports),)
        for name, _, port in ports
        if port.rate_gbps is not None and port.rate_gbps < fastest
    )


def _missing(snapshot: Snapshot) -> Inputs:
    alike = _alike(snapshot).values()
    unread = (name for ports in alike for name, _, port in ports if port.rate_gbps is None)
    return (
        *missing_states(snapshot),
        *unknown_of("model", _nameless(snapshot)),
        *unknown_of("rate", unread),
    )


def _nameless(snapshot: Snapshot) -> tuple[str, ...]:
    found = own_adapters(snapshot)
    return tuple(hca.name for hca in found if not _has_model(hca)) if len(found) > 1 else ()


def _no_peers(snapshot: Snapshot) -> str | None:
    is_known = not missing_states(snapshot) and not _nameless(snapshot)
    return "no two active ports of one model" if is_known and not _alike(snapshot) else None


RULE = Rule(
    code="RDM-004",
    claim="every HCA port runs at the rate of its peers",
    why="A collective across nodes runs at the rate of the slowest rail; a port that fell back to "
    "half its rate raises no error.",
    area=Area.RDMA,
    suite=Suite.HEALTH,
    severity=Severity.WARNING,
    needs=_missing,
    check=_slower,
    skips=first_of(no_adapters, _no_peers),
    remedy="check cable, transceiver and the switch port's settings; waive it for ports that are "
    "slower on purpose",
    reference="https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband",
)
