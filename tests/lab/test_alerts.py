"""Every alert fires when it should and is silent when it should be, by promtool's own judgement."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct, field

from tests.lab.prometheus import ALERTS, promtool

pytestmark = pytest.mark.lab

TARGET = 'job="nodetopo/nodetopo",instance="10.0.0.1:9430"'
LABELS = {"job": "nodetopo/nodetopo", "instance": "10.0.0.1:9430"}
NODE = {"node": "gpu-1"}
GPU = {"gpu": "3"}
UUID = {"uuid": "GPU-3"}
RESOURCE = {"resource": "nvidia.com/gpu"}
LONG = 1600
"""Minutes that a series lasts; more than a day."""


def series(name: str, values: str | int, **labels: str) -> tuple[str, str]:
    """Return a series of one agent in promtool's notation; a number lasts all the time."""
    inner = ",".join([TARGET, *(f'{key}="{value}"' for key, value in labels.items())])
    return f"{name}{{{inner}}}", f"{values}x{LONG}" if isinstance(values, int) else values


INFO = series("nodetopo_node_info", 1, node="gpu-1", driver="580.95.05")
BUILD = series("nodetopo_build_info", 1, version="1")
UP = series("up", 1)


class Case(Struct, frozen=True, kw_only=True):
    """One alert.

    Attributes:
        bad: series for which it fires; those of a sound agent are there as well.
        good: sets of series for each of which it is silent.
        labels: of what fires, without those of the target.
        at: minutes at which it fires, if that is later than its ``for`` after the start.
        base: the series of a sound agent.
        is_of_target: whether the labels of the target are kept.
    """

    bad: tuple[tuple[str, str], ...]
    good: tuple[tuple[tuple[str, str], ...], ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    at: int = 0
    base: tuple[tuple[str, str], ...] = (INFO, BUILD, UP)
    is_of_target: bool = True


def gpu(name: str, values: str | int, **more: str) -> tuple[str, str]:
    return series(f"nodetopo_gpu_{name}", values, **GPU, **more)


def health(name: str, values: str | int, **more: str) -> tuple[str, str]:
    return series(f"nodetopo_gpu_{name}", values, **{**GPU, **UUID, **more})


def port_errors(counter: str, values: str | int) -> tuple[str, str]:
    name = "nodetopo_hca_port_errors_total"
    return series(name, values, hca="mlx5_0", port="1", counter=counter)


def xid(code: int, values: str | int) -> tuple[str, str]:
    return series("nodetopo_xid_events_total", values, **UUID, xid=str(code))


def broken(report: str, verdict: str) -> tuple[str, str]:
    return series("nodetopo_check_broken", 1, report=report, verdict=verdict, code="KUB-004")


def fleet(gpus: int, unhealthy: int) -> tuple[tuple[str, str], ...]:
    return tuple(
        series("nodetopo_gpu_healthy", int(number >= unhealthy), gpu=str(number), uuid=str(number))
        for number in range(gpus)
    )


def allocations(quick: str, all_of_them: str) -> tuple[tuple[str, str], ...]:
    """Return the kubelet's histogram of Allocate: those within 0.1 s, and all within 0.25 s."""
    labels = 'job="kubelet",instance="gpu-1:10250",node="gpu-1",resource_name="nvidia.com/gpu"'
    name = "kubelet_device_plugin_alloc_duration_seconds_bucket"
    return tuple(
        (f'{name}{{{labels},le="{le}"}}', f"{values}x{LONG}")
        for le, values in (("0.1", quick), ("0.25", all_of_them), ("+Inf", all_of_them))
    )


CAPACITY = ('kube_node_status_capacity{job="ksm",node="gpu-1",resource="nvidia_com_gpu"}', "8x1600")
NO_GPUS = ('kube_node_status_capacity{job="ksm",node="gpu-1",resource="cpu"}', "8x1600")
OTHER_NODE = series("nodetopo_node_info", 1, node="gpu-2")
SHORT_DIP = "1x9 0x0 1x1500"

CASES = {
    "GpuUnhealthy": Case(
        bad=(health("healthy", 0),),
        good=((health("healthy", 1),), (health("healthy", SHORT_DIP),), ()),
        labels={**GPU, **UUID, **NODE},
    ),
    "GpuLost": Case(
        bad=(gpu("lost", 1),),
        good=((gpu("lost", 0), health("healthy", 0)),),
        labels={**GPU, **NODE},
    ),
    "GpuLost, forgotten": Case(
        bad=(series("nodetopo_gpu_healthy", 0, gpu="", **UUID),),
        good=((series("nodetopo_gpu_healthy", 1, gpu="", **UUID),),),
        labels={**UUID, **NODE},
    ),
    "GpuMissing": Case(
        bad=(
            series("nodetopo_gpus_missing", 1, seen_on="pci"),
            series("nodetopo_gpus_missing", 0, seen_on="none"),
        ),
        good=(
            (
                series("nodetopo_gpus_missing", 0, seen_on="pci"),
                series("nodetopo_gpus_missing", 0, seen_on="none"),
            ),
            (series("nodetopo_gpus_missing", 0, seen_on="pci"),),
        ),
        labels=NODE,
    ),
    "GpuNeedsRepair": Case(
        bad=(gpu("recovery_action", 1),),
        good=((gpu("recovery_action", 0),),),
        labels={**GPU, **NODE},
    ),
    "GpuDegraded": Case(
        bad=(health("degraded", 1),),
        good=((health("degraded", 0),), (health("degraded", "1x1000 0x0 1x600"),)),
        labels={**GPU, **UUID, **NODE},
    ),
    "GpuRowRemapFailed": Case(
        bad=(gpu("row_remap_failed", 1),),
        good=((gpu("row_remap_failed", 0), gpu("row_remap_pending", 1)),),
        labels={**GPU, **NODE},
    ),
    "GpuRowRemapPending": Case(
        bad=(gpu("row_remap_pending", 1),),
        good=((gpu("row_remap_pending", 0),), (gpu("row_remap_pending", "1x1000 0x600"),)),
        labels={**GPU, **NODE},
    ),
    "GpuSramThresholdExceeded": Case(
        bad=(gpu("sram_threshold_exceeded", 1),),
        good=((gpu("sram_threshold_exceeded", 0),),),
        labels={**GPU, **NODE},
    ),
    "GpuUncontainedMemoryError": Case(
        bad=(xid(95, "_x29 1x1500"),),
        good=((xid(94, "_x29 1x1500"),), (xid(95, 3), xid(79, "1+1x1500"))),
        labels={**UUID, **NODE, "xid": "95"},
        at=32,
    ),
    "GpuUncontainedMemoryError, another": Case(
        bad=(xid(95, "1x29 2x1500"),),
        good=((xid(95, "1x1500"),),),
        labels={**UUID, **NODE, "xid": "95"},
        at=32,
    ),
    "GpuMemoryErrors": Case(
        bad=(gpu("uncorrectable_memory_errors_total", "0x29 2x1500"),),
        good=(
            (gpu("uncorrectable_memory_errors_total", 7),),
            (gpu("uncorrectable_memory_errors_total", "7x29 0x1500"),),
        ),
        labels={**GPU, **NODE},
        at=40,
    ),
    "GpuXidBurst": Case(
        bad=(xid(62, "0+3x1500"),),
        good=((xid(62, "0+1x1500"),), (xid(13, "0+9x1500"), xid(45, "0+99x1500"))),
        labels={**UUID, **NODE},
        at=30,
    ),
    "GpuFlapping": Case(
        bad=(health("healthy", "1 0 1 0 1 0 1x1500"),),
        good=((health("healthy", "1 0 1 0 1x1500"),),),
        labels={**GPU, **UUID, **NODE},
        at=30,
    ),
    "GpuPcieWidthReduced": Case(
        bad=(gpu("pcie_link_width", 8), gpu("pcie_link_width_max", 16)),
        good=((gpu("pcie_link_width", 16), gpu("pcie_link_width_max", 16)),),
        labels={**GPU, **NODE},
    ),
    "GpuNvLinkDown": Case(
        bad=(gpu("nvlinks_active", "18x9 17x1500"),),
        good=(
            (gpu("nvlinks_active", 12),),
            (gpu("nvlinks_active", "18x9 0x1500"), gpu("mig_devices", "_x9 7x1500")),
            (gpu("nvlinks_active", "17x9 18x1500"),),
        ),
        labels={**GPU, **NODE},
        at=13,
    ),
    "GpuFabricNotReady": Case(
        bad=(gpu("fabric_registered", 0),),
        good=((gpu("fabric_registered", "0x8 1x1500"),), ()),
        labels={**GPU, **NODE},
    ),
    "HcaPortDown": Case(
        bad=(series("nodetopo_hca_ports_active", "2x9 1x1500", hca="mlx5_0"),),
        good=(
            (series("nodetopo_hca_ports_active", 0, hca="mlx5_0"),),
            (series("nodetopo_hca_ports_active", "1x9 0x2 1x1500", hca="mlx5_0"),),
        ),
        labels={"hca": "mlx5_0", **NODE},
        at=16,
    ),
    "HcaUnhealthy": Case(
        bad=(series("nodetopo_hca_healthy", 0, hca="mlx5_0", key="0000:18:00.0"),),
        good=(
            (series("nodetopo_hca_healthy", 1, hca="mlx5_0", key="0000:18:00.0"),),
            (series("nodetopo_hca_healthy", "1x9 0x3 1x1500", hca="mlx5_0", key="a"),),
            (),
        ),
        labels={"hca": "mlx5_0", "key": "0000:18:00.0", **NODE},
    ),
    "HcaLinkFlapping": Case(
        bad=(port_errors("link_downed", "0+1x5 5x1500"),),
        good=(
            (port_errors("link_downed", "0+1x3 3x1500"),),
            (port_errors("symbol_error", "0+9x1500"),),
            (port_errors("link_downed", 400),),
        ),
        labels={"hca": "mlx5_0", "port": "1", "counter": "link_downed", **NODE},
        at=30,
    ),
    "GpuPlacementUndone": Case(
        bad=(broken("audit", "fail"),),
        good=((broken("audit", "warn"),), (broken("health", "fail"),)),
        labels={"code": "KUB-004"},
        is_of_target=False,
    ),
    "GpuHardwareCheckFails": Case(
        bad=(broken("health", "fail"),),
        good=((broken("health", "warn"),), (broken("audit", "fail"),)),
        labels={"code": "KUB-004"},
        is_of_target=False,
    ),
    "GpuPodsMisaligned": Case(
        bad=(series("nodetopo_pods_misaligned", 2, reason="KUB-004"),),
        good=((series("nodetopo_pods_misaligned", "2x5 0x1500", reason="KUB-004"),),),
        labels={"reason": "KUB-004", **NODE},
    ),
    "GpuPodsNotMeasured": Case(
        bad=(series("nodetopo_pod_measurement_errors_total", "0+1x1500"),),
        good=((series("nodetopo_pod_measurement_errors_total", "0+1x3 3x1500"),),),
        labels=NODE,
        at=40,
    ),
    "GpuPodsRejected": Case(
        bad=(
            series("nodetopo_rejections_total", "0+1x1500", outcome="explained"),
            series("nodetopo_rejections_total", 0, outcome="given-up"),
        ),
        good=((series("nodetopo_rejections_total", "0+1x5 5x1500", outcome="explained"),),),
        labels=NODE,
        at=60,
    ),
    "GpuPlacementLate": Case(
        bad=(series("nodetopo_preferred_allocations_unchosen_total", "0x5 1x1500", **RESOURCE),),
        good=((series("nodetopo_preferred_allocations_unchosen_total", 4, **RESOURCE),),),
        labels={**RESOURCE, **NODE},
        at=30,
    ),
    "GpuAllocationSlow": Case(
        bad=allocations("0", "0+1"),
        good=(allocations("0+1", "0+1"), allocations("3", "3")),
        labels={"instance": "gpu-1:10250", "resource_name": "nvidia.com/gpu", **NODE},
        at=30,
        is_of_target=False,
    ),
    "NodetopoDown": Case(
        bad=(series("up", 0),),
        good=((series("up", "1x9 0x2 1x1500"),), (series("up", 1),)),
        base=(BUILD,),
    ),
    "NodetopoAbsent": Case(
        bad=(), good=((BUILD,),), base=(UP,), is_of_target=False
    ),
    "NodetopoMissing": Case(
        bad=(CAPACITY, OTHER_NODE),
        good=((CAPACITY, INFO), (NO_GPUS,), ()),
        labels=NODE,
        base=(BUILD, UP),
        is_of_target=False,
    ),
    "NodetopoRestarting": Case(
        bad=(series("process_start_time_seconds", "10 20 30 40 50x1500"),),
        good=(
            (series("process_start_time_seconds", "10 20 30 30x1500"),),
            (('process_start_time_seconds{job="other",instance="x"}', "10 20 30 40 50x1500"),),
        ),
        at=30,
    ),
    "NodetopoNotReady": Case(
        bad=(series("nodetopo_ready", 0), series("nodetopo_driver_paused", 0)),
        good=(
            (series("nodetopo_ready", "0x3 1x1500"),),
            (series("nodetopo_ready", 0), series("nodetopo_driver_paused", 1)),
        ),
        labels=NODE,
    ),
    "NodetopoDriverPaused": Case(
        bad=(series("nodetopo_driver_paused", 1),),
        good=(
            (series("nodetopo_driver_paused", 0),),
            (series("nodetopo_driver_paused", "1x50 0x1500"),),
        ),
        at=70,
        labels=NODE,
    ),
    "NodetopoNotReady, not scanned": Case(
        bad=(series("nodetopo_ready", 0),),
        good=((series("nodetopo_ready", 1),),),
        base=(BUILD, UP),
    ),
    "GpuResourceNotRegistered": Case(
        bad=(series("nodetopo_registered", 0, **RESOURCE), series("nodetopo_gpus", 8)),
        good=(
            (series("nodetopo_registered", 1, **RESOURCE), series("nodetopo_gpus", 8)),
            (series("nodetopo_registered", 0, **RESOURCE), series("nodetopo_gpus", 0)),
        ),
        labels={**RESOURCE, **NODE},
    ),
    "GpuResourceConflict": Case(
        bad=(series("nodetopo_resource_conflict", 1, **RESOURCE),),
        good=((series("nodetopo_resource_conflict", 0, **RESOURCE),),),
        labels={**RESOURCE, **NODE},
    ),
    "NvmlStuck": Case(
        bad=(series("nodetopo_nvml_failures_in_a_row", 3),),
        good=((series("nodetopo_nvml_failures_in_a_row", 2),),),
        labels=NODE,
    ),
    "NodeScanStale": Case(
        bad=(series("nodetopo_last_scan_timestamp_seconds", 0),),
        good=(
            (series("nodetopo_last_scan_timestamp_seconds", "0+60x1500"),),
            (
                series("nodetopo_last_scan_timestamp_seconds", 0),
                series("nodetopo_driver_paused", 1),
            ),
        ),
        at=10,
        labels=NODE,
    ),
    "NodetopoConfigRefused": Case(
        bad=(series("nodetopo_config_reload_failures_total", "0x5 1x1500"),),
        good=((series("nodetopo_config_reload_failures_total", 1),),),
        at=10,
        labels=NODE,
    ),
    "GpuLabelsNotPublished": Case(
        bad=(series("nodetopo_label_errors_total", "0+1x1500"),),
        good=((series("nodetopo_label_errors_total", "0+1x3 4x1500"),),),
        at=30,
        labels=NODE,
    ),
    "GpuLabelsRefused": Case(
        bad=(series("nodetopo_labels_refused", 1),),
        good=((series("nodetopo_labels_refused", 0),),),
        labels=NODE,
    ),
    "NodeZonesNotPublished": Case(
        bad=(series("nodetopo_zone_errors_total", "0+1x1500"),),
        good=((series("nodetopo_zone_errors_total", "0+1x3 4x1500"),),),
        at=30,
        labels=NODE,
    ),
    "GpuFleetDegraded": Case(
        bad=fleet(64, 2),
        good=(fleet(64, 1), fleet(8, 8), fleet(64, 0)),
        is_of_target=False,
    ),
}  # fmt: skip


def rules() -> dict[str, dict[str, Any]]:
    """Return the alerts of the file by name."""
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def minutes(duration: str) -> int:
    """Return a duration of the file in minutes."""
    number, unit = int(duration[:-1]), duration[-1]
    return number * {"m": 1, "h": 60}[unit]


def judged(alert: str, inputs: tuple[tuple[str, str], ...], at: int, labels: object) -> Any:
    """Return a test of promtool: at minute *at*, *alert* fires with *labels*, ``None`` for not."""
    fired = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    shown = []
    if isinstance(labels, dict):
        inner = ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        shown = [{"labels": f"ALERTS{{{inner}}}", "value": 1}]
    names = {name for name, _ in inputs}
    assert len(names) == len(inputs), inputs
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in inputs],
        "promql_expr_test": [{"expr": fired, "eval_time": f"{at}m", "exp_samples": shown}],
    }


def merged(base: tuple[tuple[str, str], ...], own: tuple[tuple[str, str], ...]) -> Any:
    """Return the series of *base* that *own* does not replace, and *own*."""
    replaced = {name for name, _ in own}
    return (*(one for one in base if one[0] not in replaced), *own)


@pytest.fixture
def verdict(tmp_path: Path) -> Any:
    """Return a function from tests to what promtool says against them, of *alert* alone."""

    def of(*tests: Any, alert: str | None = None) -> str:
        groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
        if alert is not None:  # the others would take most of the time
            groups = [{"name": "one", "rules": [rules()[alert]]}]
        path, rule_file = tmp_path / "tests.yaml", tmp_path / "rules.yaml"
        rule_file.write_text(yaml.safe_dump({"groups": groups}), "utf-8")
        document = {
            "rule_files": [rule_file.name],
            "evaluation_interval": "1m",
            "tests": list(tests),
        }
        path.write_text(yaml.safe_dump(document), "utf-8")
        ended = promtool("test", "rules", path)
        return "" if ended.returncode == 0 else ended.stdout

    return of


def test_the_rules_load() -> None:
    ended = promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS)
    assert ended.returncode == 0, ended.stdout


def test_every_alert_has_a_case() -> None:
    assert {name.partition(",")[0] for name in CASES} == set(rules())


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_no_sooner(name: str, verdict: Any) -> None:
    alert, case = name.partition(",")[0], CASES[name]
    rule = rules()[alert]
    lasts = minutes(rule["for"])
    labels = {
        "alertname": alert,
        "alertstate": "firing",
        "severity": rule["labels"]["severity"],
        **(LABELS if case.is_of_target else {}),
        **case.labels,
    }
    inputs = merged(case.base, case.bad)
    tests = [judged(alert, inputs, max(case.at, lasts), labels)]
    if lasts:
        tests.append(judged(alert, inputs, lasts - 1, None))
    assert verdict(*tests, alert=alert) == ""
    # Nothing that the texts insert is a label that the alert does not have.
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    optional = {"cluster"} | ({"gpu", "uuid"} if alert == "GpuLost" else set())
    optional |= {"node"} if alert == "NodetopoNotReady" else set()
    assert used - optional <= labels.keys()


@pytest.mark.parametrize("name", CASES)
def test_an_alert_is_silent_when_it_should_be(name: str, verdict: Any) -> None:
    alert, case = name.partition(",")[0], CASES[name]
    ends = {max(15, minutes(rules()[alert]["for"])), max(15, case.at), 60}
    tests = [
        judged(alert, merged(case.base, inputs), at, None)
        for inputs in case.good
        for at in sorted({*ends, max(ends) + 5})
    ]
    assert case.good
    assert verdict(*tests, alert=alert) == ""


def test_a_target_that_is_scraped_twice_breaks_no_rule(verdict: Any) -> None:
    # By a pod monitor and by annotations, as happens: each has a job of its own.
    again = [
        (name.replace("nodetopo/nodetopo", "kubernetes-pods"), values)
        for name, values in (INFO, health("healthy", 0))
    ]
    labels = {"alertname": "GpuUnhealthy", "alertstate": "firing", "severity": "critical"}
    fired = {**labels, **LABELS, **GPU, **UUID, **NODE}
    test = judged("GpuUnhealthy", (INFO, health("healthy", 0), *again), 5, fired)
    (expected,) = test["promql_expr_test"]
    inner = expected["exp_samples"][0]["labels"]
    expected["exp_samples"].append(
        {"labels": inner.replace("nodetopo/nodetopo", "kubernetes-pods"), "value": 1}
    )
    assert verdict(test) == ""


def test_recordings_add_up_by_cluster_and_model(verdict: Any) -> None:
    inputs = [
        series("nodetopo_gpu_info", 1, gpu=number, uuid=f"GPU-{number}", model="H100")
        for number in "01"
    ]
    inputs += [
        series("nodetopo_gpu_healthy", int(number == "0"), gpu=number, uuid=f"GPU-{number}")
        for number in "01"
    ]
    inputs += [
        series("nodetopo_gpu_degraded", 0, gpu=number, uuid=f"GPU-{number}") for number in "01"
    ]
    inputs += [
        series("nodetopo_ready", 1),
        series("nodetopo_devices", 7, health="healthy", **RESOURCE),
        health("health_info", 1, **{"class": "rma", "reason": "RowRemapFailed"}),
        xid(79, "0+1x100"),
    ]
    expected = {
        "cluster:nodetopo_nodes:count": 1,
        "cluster:nodetopo_nodes_ready:sum": 1,
        'cluster_model:nodetopo_gpus:count{model="H100"}': 2,
        'cluster_model:nodetopo_gpus_healthy:sum{model="H100"}': 1,
        'cluster_model:nodetopo_gpus_degraded:sum{model="H100"}': 0,
        'cluster_class:nodetopo_gpus_unsound:count{class="rma"}': 1,
        'cluster_resource_health:nodetopo_devices:sum{health="healthy",'
        'resource="nvidia.com/gpu"}': 7,
        'cluster_xid:nodetopo_xid_events:increase1h{xid="79"}': 60,
    }  # fmt: skip
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    recorded = {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}
    assert {name.partition("{")[0] for name in expected} == recorded
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in inputs],
        "promql_expr_test": [
            {
                "expr": name.partition("{")[0],
                "eval_time": "90m",
                "exp_samples": [{"labels": name, "value": value}],
            }
            for name, value in expected.items()
        ],
    }
    assert verdict(test) == ""
