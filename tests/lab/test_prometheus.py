"""A real Prometheus scrapes real agents, evaluates every rule, and answers every panel."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.kernel.http.families import families
from nodetopo.kernel.http.family import Per
from nodetopo.tools.capture.archive import unpack
from scripts.generators.metrics import minimal_pattern, node_series
from tests.generous_deadlines import use_generous_deadlines
from tests.kernel.test_app_health import NODES, Daemon, running
from tests.lab.prometheus import ALERTS, DASHBOARD, Prometheus, eventually
from tests.lab.prometheus import running as prometheus

__all__ = ["use_generous_deadlines"]

FAMILIES = [family for _, family in families()]

pytestmark = pytest.mark.lab

WHOLE = "h100x8-nvswitch-2numa-8cx7"
DIVIDED = "h100x8-nvswitch-2numa-mig"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"

ABSENT = {
    "nodetopo_config_info",
    "nodetopo_pods_measured",
    "nodetopo_pods_misaligned",
    *(it.full_name for it in FAMILIES if it.full_name.startswith("nodetopo_dra_")),
}
"""What these agents do not have: a configuration by name, a kubelet that lists pods, and DRA."""

POOL = {
    "resourceName": "a",
    "rdmaHcaMax": 16,
    "selectors": {"vendors": ["15b3"]},
    "mode": "chosen",
}
"""Offered by the agent of the whole machine, for the metrics of HCAs and of lookups."""

CONFIGURATION = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: nodetopo/nodetopo
    static_configs:
      - {{targets: ["{whole}"], labels: {{cluster: east}}}}
      - {{targets: ["{divided}"]}}
  - job_name: minimal
    static_configs:
      - {{targets: ["{whole}"]}}
    metric_relabel_configs: {minimal}
"""


def start(stack: ExitStack, directory: Path, machine: str, *arguments: str) -> Daemon:
    """Start an agent on *machine*, with a kubelet of its own."""
    directory.mkdir()
    unpack((NODES / machine / "sysfs.txt").read_text("utf-8"), directory / "root")
    counted = hca_port(directory) / "counters"
    counted.mkdir(exist_ok=True)
    (counted / "link_downed").write_text("3\n", "ascii")
    (directory / "sysfs").symlink_to("root/sys")
    (directory / "procfs").symlink_to("root/proc")
    kubelet = stack.enter_context(FakeKubelet(directory))
    agent = stack.enter_context(running(directory, machine, *arguments))
    kubelet.wait_registered(120)
    return agent


def hca_port(directory: Path) -> Path:
    """Return the directory of an HCA's port of the machine in *directory*."""
    return directory / "root" / "sys" / "class" / "infiniband" / "mlx5_7" / "ports" / "1"


def with_troubles(agent: Daemon) -> None:
    """Let GPUs have what every panel about troubles can show."""
    text = (NODES / WHOLE / "nvml.txt").read_text("utf-8")
    asks = "nvmlDeviceGetFieldValue 3 230 = 0 "
    assert f"{asks}0\n" in text
    over_threshold = " | ".join(["0"] * 11 + ["1"])
    agent.nvml.answer(
        text.replace(f"{asks}0\n", f"{asks}1\n")
        + f"nvmlDeviceGetSramEccErrorStatus 4 = 0 {over_threshold}\n"
    )
    agent.nvml.xid(0, 79)
    agent.nvml.xid(1, 95)
    agent.nvml.xid(2, 13, 7)


def minimal_relabeling() -> str:
    """Return the relabeling of the page, as Prometheus itself writes it."""
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (rule,) = yaml.safe_load(text)["metricRelabelings"]
    return json.dumps([{("source_labels" if k == "sourceLabels" else k): rule[k] for k in rule}])


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Return a Prometheus that has scraped a node with troubles and one in MIG mode."""
    home = tmp_path_factory.mktemp("p")
    with ExitStack() as stack:
        pools = home / "pools.json"
        pools.write_text(json.dumps({"configList": [POOL]}), "utf-8")
        agent = start(stack, home / "w", WHOLE, f"--rdma-config={pools}")
        divided = start(stack, home / "d", DIVIDED, "--mig-strategy=mixed")
        targets = {
            name: urlsplit(one.url()).netloc
            for name, one in (("whole", agent), ("divided", divided))
        }
        (home / "prometheus").mkdir()
        server = stack.enter_context(
            prometheus(
                home / "prometheus",
                CONFIGURATION.format(rules=ALERTS, minimal=minimal_relabeling(), **targets),
            )
        )
        with_troubles(agent)
        (hca_port(home / "w") / "state").write_text("1: DOWN\n", "ascii")
        for query in (
            "count(nodetopo_hca_health_info) == 2",  # of both jobs
            "increase(nodetopo_hca_port_errors_total[1h]) >= 0",
            'nodetopo_xid_events_total{xid="95"}',
            "nodetopo_gpu_recovery_action == 1",
            "nodetopo_gpu_sram_threshold_exceeded == 1",
            'nodetopo_checks{report="health"}',
            'nodetopo_checks{report="audit"}',
            'nodetopo_check_broken{verdict="fail"}',
            "increase(nodetopo_xid_events_total[1h]) >= 0",
            "increase(nodetopo_gpu_uncorrectable_memory_errors_total[1h]) >= 0",
            'ALERTS{alertname="GpuUncontainedMemoryError",alertstate="firing"}',
        ):
            eventually(lambda query=query: server.query(query))  # type: ignore[misc]
        yield server


def queries() -> Iterator[tuple[str, str]]:
    """Yield the panel and the text of each query of the dashboard, with everything chosen."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            text = target["expr"].replace("$__rate_interval", "10s")
            yield panel["title"], re.sub(r"\$(?:cluster|node|resource)\b", ".*", text)


def named(expression: str) -> set[str]:
    return set(re.findall(r"(?<!:)\bnodetopo_[a-z_]+", expression))


def test_every_target_is_up_and_no_sample_is_refused(scraped: Prometheus) -> None:
    targets = scraped.get("targets", state="active")["activeTargets"]
    assert [(one["health"], one["lastError"]) for one in targets] == [("up", "")] * 3
    refused = {
        name: value
        for name, value in scraped.own_metrics().items()
        if re.match(r"prometheus_target_scrapes_(sample_|exceeded_)", name)
    }
    assert "prometheus_target_scrapes_sample_duplicate_timestamp_total" in refused
    assert {name: value for name, value in refused.items() if value} == {}
    bad = [
        line
        for line in scraped.text().splitlines()
        if re.search(r"level=(warn|error)|component=\"scrape manager\".*err=", line)
    ]
    assert bad == []


def test_every_metric_of_the_page_is_there_or_says_when_it_is(scraped: Prometheus) -> None:
    found = scraped.query('count by (__name__) ({__name__=~"nodetopo_.+",job="nodetopo/nodetopo"})')
    there = {one["metric"]["__name__"] for one in found}
    by_name = {family.full_name: family for family in FAMILIES}
    assert by_name.keys() - there == ABSENT
    assert all(by_name[name].when for name in ABSENT)
    assert there <= by_name.keys()


def test_every_rule_is_evaluated_without_an_error(scraped: Prometheus) -> None:
    groups = scraped.get("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    whole = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    assert len(rules) == sum(len(group["rules"]) for group in whole)
    eventually(lambda: all(rule["health"] == "ok" for rule in _rules(scraped)))
    assert [rule["lastError"] for rule in _rules(scraped) if rule.get("lastError")] == []
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    eventually(lambda: all(scraped.query(name) for name in recorded))


def test_alerts_of_a_broken_node_speak_of_it(scraped: Prometheus) -> None:
    wanted = {"GpuUnhealthy", "GpuNeedsRepair", "GpuUncontainedMemoryError"}
    eventually(lambda: wanted <= {one["labels"]["alertname"] for one in _alerts(scraped)})
    for alert in _alerts(scraped):
        texts = " ".join(alert["annotations"].values())
        assert "<no value>" not in texts, texts
        assert "{{" not in texts, texts
        assert "%!" not in texts, texts
    labels = [one["labels"] for one in _alerts(scraped)]
    unhealthy = [one for one in labels if one["alertname"] == "GpuUnhealthy"]
    assert ("n", "east") in {(one["node"], one.get("cluster")) for one in unhealthy}


@pytest.mark.parametrize(("title", "query"), tuple(queries()))
def test_a_panel_of_the_dashboard_shows_something(
    title: str, query: str, scraped: Prometheus
) -> None:
    shown = scraped.query(query)
    assert shown or named(query) & ABSENT, title


def test_the_series_are_no_more_than_documented(scraped: Prometheus) -> None:
    problems = "|".join(one.full_name for one in FAMILIES if one.per is Per.PROBLEM)
    of_agents = '{__name__=~"(nodetopo|process)_.+",job="nodetopo/nodetopo"'
    found = _values(
        scraped.query(f'count by (cluster) ({of_agents},__name__!~"{problems}"}})'), "cluster"
    )
    assert found["east"] <= node_series(gpus=8, hcas=8)
    resources = len(scraped.query('nodetopo_registered{cluster=""}'))
    assert resources > 1
    assert found[""] <= node_series(gpus=8, hcas=8, resources=resources)


def test_the_minimal_set_is_what_the_page_says(scraped: Prometheus) -> None:
    found = scraped.query('count by (__name__) ({job="minimal",__name__!~"up|scrape_.+|ALERTS.*"})')
    names = {one["metric"]["__name__"] for one in found}
    pattern = re.compile(minimal_pattern())
    assert names == {family.full_name for family in FAMILIES if pattern.fullmatch(family.full_name)}
    (sound,) = scraped.query('count({job="minimal",__name__!~"up|scrape_.+|ALERTS.*|.*_xid_.*"})')
    (said,) = re.findall(r"can keep (\d+) series", PAGE.read_text("utf-8"))
    assert float(sound["value"][1]) <= int(said)


def _rules(server: Prometheus) -> list[Mapping[str, Any]]:
    return [rule for group in server.get("rules")["groups"] for rule in group["rules"]]


def _alerts(server: Prometheus) -> list[Mapping[str, Any]]:
    alerts: list[Mapping[str, Any]] = server.get("alerts")["alerts"]
    return alerts


def _values(series: list[Mapping[str, Any]], label: str) -> dict[str, float]:
    return {one["metric"].get(label, ""): float(one["value"][1]) for one in series}
