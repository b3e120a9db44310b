"""How many series a node has, whatever it has and whatever it says of itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from nodetopo.components.gpus.health.monitor import GpuHealthMonitor
from nodetopo.components.gpus.health.rules import HealthRules
from nodetopo.formats.harmless import harmless
from nodetopo.kernel.components import COMPONENTS
from nodetopo.kernel.http.families import families, metric_of, series
from nodetopo.kernel.http.family import LONGEST_LABEL, MOST_SERIES, Per
from nodetopo.machines.bundled import machine, names
from nodetopo.model.gpu import EccErrors, Fabric, FabricState, Mig, RemappedRows
from nodetopo.model.hca import Hca, HcaPort
from nodetopo.model.hca_health import HcaHealth
from nodetopo.model.nvml_event import EventKind, NvmlEvent
from nodetopo.model.presence import ExpectedGpus
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from scripts.generators.metrics import node_series
from tests.kernel.http.scraped import BROKEN, Readings, fetch, served
from tests.kernel.readings import of_components, of_dra, readings, with_facts

VERDICTS = ("pass", "warn", "fail", "unknown", "waived", "skipped")
EXPECTED = ExpectedGpus(count=8, source="the machine has had")
HOSTILE = ('a"b', "a\\b", "a\nb 1", "{}", "# EOF", "\u202e\u0000", "x" * 300)


def full(snapshot: Snapshot, resources: int = 1) -> Readings:
    """Return *snapshot* with every GPU broken, and all that an agent may say beside it."""
    offered = [f"nvidia.com/r{number}" for number in range(resources)]
    checks = dict.fromkeys(VERDICTS, 1)
    facts = of_components(
        kernel={
            "config": "one",
            "connections": 1,
            "connections_refused": dict.fromkeys(("limit", "deadline", "descriptors"), 0),
        },
        gpus={
            "strategies": ("cdi-cri",),
            "registrations": dict.fromkeys(offered, 1),
            "is_registered": dict.fromkeys(offered, True),
            "devices": {name: {"healthy": 1, "unhealthy": 0} for name in offered},
            "allocations": dict.fromkeys(offered, 1),
            "unchosen": dict.fromkeys(offered, 0),
            "lookups": dict.fromkeys(("known", "ambiguous", "failed"), 0),
            "health": {gpu.id: BROKEN for gpu in snapshot.gpus},
        },
        rdma=of_hcas(snapshot.hcas or ()),
        dra=of_dra(),
        audit={
            "check_counts": {"health": checks, "audit": checks},
            "pods_measured": dict.fromkeys(("aligned", "misaligned", "unknown"), 0),
        },
    )
    return readings(structs.replace(snapshot, expected_gpus=EXPECTED), **facts)


def of_hcas(hcas: Sequence[Hca]) -> Mapping[str, Any]:
    """Return facts of every metric of *hcas*, all Unhealthy; none without the component."""
    if "rdma" not in COMPONENTS:
        return {}
    from nodetopo.components.rdma.health.probe import COUNTERS  # noqa: PLC0415 - see above

    return {
        "hca_health": {
            hca.name: HcaHealth(name=hca.name, is_healthy=False, reason="HcaLost") for hca in hcas
        },
        "hca_counters": {
            (hca.name, port.number): dict.fromkeys(COUNTERS, 0)
            for hca in hcas
            for port in hca.ports
        },
    }


def counted(state: Readings, *, problems: bool = False) -> Mapping[str, int]:
    """Return the series of each family, or of those that only problems have."""
    chosen = [item for item in families() if (item[1].per is Per.PROBLEM) == problems]
    return {
        family.full_name: len(metric_of(family, state[name]).samples) for name, family in chosen
    }


@pytest.mark.parametrize("name", names())
def test_a_bundled_machine_has_no_more_series_than_documented(name: str) -> None:
    node = machine(name)
    for resources in (1, 3):
        found = sum(counted(full(node, resources)).values())
        hcas = node.hcas or ()
        ports = sum(len(hca.ports) for hca in hcas)
        most = series(gpus=len(node.gpus), resources=resources, hcas=len(hcas), ports=ports)
        assert found <= most


def test_a_node_of_which_everything_is_known_has_as_many_series_as_documented() -> None:
    node = machine("dgx-h100")
    gpus = tuple(
        structs.replace(
            gpu,
            recovery_action=0,
            remapped_rows=RemappedRows(
                correctable=0, uncorrectable=0, is_pending=False, has_failed=False
            ),
            ecc_errors=EccErrors(volatile=0),
            is_over_sram_threshold=False,
            fabric=Fabric(state=FabricState.COMPLETED, status=0),
            mig=Mig(is_enabled=True),
        )
        for gpu in node.gpus
    )
    state = full(structs.replace(node, gpus=gpus))
    hcas = len(node.hcas or ())
    assert sum(counted(state).values()) == series(gpus=8, hcas=hcas)
    with served(state) as server:
        text = fetch(server.url)[1]
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == node_series(gpus=8, hcas=hcas)


def test_no_count_grows_with_what_a_node_says_of_itself() -> None:
    node = machine("dgx-h100")
    many = tuple(
        Hca(name=f"{HOSTILE[number % len(HOSTILE)]}{number}", ports=(HcaPort(number=1),))
        for number in range(2 * MOST_SERIES)
    )
    issues = tuple(
        ProbeIssue(probe=f"probe {number}", subject="", reason="") for number in range(5000)
    )
    state = with_facts(
        full(structs.replace(node, hcas=many, issues=issues)),
        xid_counts={(f"GPU-{number}", number): 1 for number in range(5000)},
        pods_misaligned={f"cause {number}": 1 for number in range(5000)},
        checks_broken={"audit": {f"C-{number}": "fail" for number in range(5000)}},
    )
    assert max(counted(state, problems=True).values()) == MOST_SERIES
    assert max(counted(state).values()) == MOST_SERIES


def test_hostile_names_are_label_values_and_nothing_else() -> None:
    node = structs.replace(
        machine("l40s-pcie-4"),
        hcas=tuple(Hca(name=name, ports=(HcaPort(number=1),)) for name in HOSTILE),
    )
    with served(full(node)) as server:
        text = fetch(server.url)[1]
    found = [
        sample.labels["hca"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "nodetopo_hca_ports"
    ]
    assert found == [harmless(name, LONGEST_LABEL) for name in HOSTILE]


def test_a_driver_that_invents_gpus_and_xids_adds_few_series() -> None:
    health = GpuHealthMonitor(
        HealthRules(), None, boot_id=None, clock=lambda: 0.0, on_change=lambda: None
    )
    health.take_events(
        [
            NvmlEvent(kind=EventKind.XID, gpu=f"GPU-{number}", xid=number, count=1)
            for number in range(20_000)
        ]
    )
    state = readings(health=health.view, xid_counts=health.counts)
    assert 0 < max(counted(state, problems=True).values()) <= MOST_SERIES
    assert max(counted(state).values()) <= MOST_SERIES


def test_no_label_is_of_a_pod() -> None:
    named = {label for _, family in families() for label in family.labels}
    assert named == {
        *("version", "strategy", "probe", "report", "verdict", "code", "outcome", "name"),
        *("resource", "health", "node", "driver", "nvml", "machine"),
        *("hca", "key", "port", "counter", "seen_on"),
        *("field", "gpu", "uuid", "pci", "model", "numa", "class", "reason", "xid"),
    }
