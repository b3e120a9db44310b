"""A remark on errors that the ports of HCAs have counted since they came up."""

from agent.checks.inputs import Inputs, first_of, no_adapters, own_adapters, unknown_of
from agent.checks.rdma_ports import NamedPort, active_ports, is_efa, missing_states
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot

LINK_ERRORS = (
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "symbol_error",
)
"""The counters of sysfs that speak of the cable and its two ends. Discards and retransmissions
are left out: a busy fabric makes them."""


def _counted(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=port[0], observed=counts, expected="none since the port came up")
        for port in active_ports(snapshot)
        if (counts := _counts(port))
    )


def _counts(port: NamedPort) -> str:
    counters = port[2].counters or {}
    return ", ".join(f"{name} {counters[name]}" for name in LINK_ERRORS if counters.get(name))


def _missing(snapshot: Snapshot) -> Inputs:
    # A function that may not read its port's counters gives none at all.
    silent = (
        name
        for name, hca, port in active_ports(snapshot)
        if not is_efa(hca) and not set(LINK_ERRORS) & set(port.counters or ())
    )
    return missing_states(snapshot) + unknown_of("error counters", silent)


def _no_counters(snapshot: Snapshot) -> str | None:
    found = own_adapters(snapshot)
    is_own = bool(found) and all(map(is_efa, found))
    return "EFA, which counts no errors of its link" if is_own else None


RULE = Rule(
    code="RDM-006",
    claim="no HCA port has counted errors of its link",
    why="A bad cable or transceiver shows in these counters long before the port goes down; what "
    "matters is whether they grow.",
    area=Area.RDMA,
    suite=Suite.AUDIT,
    severity=Severity.INFO,
    needs=_missing,
    check=_counted,
    skips=first_of(no_adapters, _no_counters),
    remedy="look again after an hour of work: if the counters grow, clean or exchange cable and "
    "transceiver",
    reference="https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband",
)
