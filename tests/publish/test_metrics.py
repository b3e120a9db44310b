"""Metrics as Prometheus reads them."""

import dataclasses
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.errors import InputError
from agent.health.status import GpuHealth, HealthClass, HealthView
from agent.machines.bundled import machine
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.publish.families import FAMILIES
from agent.publish.metrics import STUCK_S, MetricsServer, MetricsState, serve_metrics

NOTHING = MetricsState(snapshot=None)


@contextmanager
def served(state: MetricsState) -> Iterator[MetricsServer]:
    server = serve_metrics("127.0.0.1:0", lambda: state)
    try:
        yield server
    finally:
        server.close()


def fetch(url: str, accept: str = "*/*") -> tuple[int, str]:
    request = Request(url, headers={"Accept": accept})
    try:
        with urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(state: MetricsState, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of *name*, by their label values in alphabetic order of names."""
    with served(state) as server:
        _, text = fetch(server.url)
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def of(snapshot: Snapshot) -> MetricsState:
    return MetricsState(snapshot=snapshot)


def test_registrations_are_counted_by_resource() -> None:
    state = MetricsState(snapshot=None, registrations={"nvidia.com/gpu": 3})
    assert samples(state, "nodetopo_registrations_total") == {("nvidia.com/gpu",): 3.0}


def test_a_lost_registration_shows_as_zero() -> None:
    state = MetricsState(snapshot=None, is_registered={"nvidia.com/gpu": False})
    assert samples(state, "nodetopo_registered") == {("nvidia.com/gpu",): 0.0}


def test_label_writes_are_counted() -> None:
    state = MetricsState(snapshot=None, publish_writes=2)
    assert samples(state, "nodetopo_label_writes_total") == {(): 2.0}


def test_label_errors_are_counted() -> None:
    state = MetricsState(snapshot=None, publish_errors=5)
    assert samples(state, "nodetopo_label_errors_total") == {(): 5.0}


def test_checks_are_counted_by_report_and_verdict() -> None:
    state = MetricsState(snapshot=None, check_counts={"audit": {"pass": 4, "fail": 1}})
    assert samples(state, "nodetopo_checks") == {("audit", "pass"): 4.0, ("audit", "fail"): 1.0}


def test_the_generation_is_told() -> None:
    state = MetricsState(snapshot=None, generation=7)
    assert samples(state, "nodetopo_snapshot_generation") == {(): 7.0}


def test_each_gpu_is_identified_once() -> None:
    cell = "NVIDIA L40S"
    assert samples(of(machine("l40s-pcie-4")), "nodetopo_gpu_info") == {
        ("0", cell, "0", "0000:4a:00.0", "GPU-00000140-0000-4000-8000-000000000000"): 1.0,
        ("1", cell, "0", "0000:61:00.0", "GPU-00000140-0000-4000-8000-000000000001"): 1.0,
        ("2", cell, "1", "0000:ca:00.0", "GPU-00000140-0000-4000-8000-000000000002"): 1.0,
        ("3", cell, "1", "0000:e1:00.0", "GPU-00000140-0000-4000-8000-000000000003"): 1.0,
    }


def test_active_nvlinks_are_counted_by_gpu() -> None:
    found = samples(of(machine("dgx-h100")), "nodetopo_gpu_nvlinks_active")
    assert found == {(str(index),): 18.0 for index in range(8)}


def test_unknown_facts_have_no_sample() -> None:
    node = machine("l40s-pcie-4")
    gpu = dataclasses.replace(node.gpus[0], recovery_action=None)
    unknown = dataclasses.replace(node, gpus=(gpu,))
    assert samples(of(unknown), "nodetopo_gpu_recovery_action") == {}


def test_what_could_not_be_read_is_counted_by_probe() -> None:
    issue = ProbeIssue(probe="nvml", subject="GPU0", reason="timeout")
    state = of(dataclasses.replace(machine("l40s-pcie-4"), issues=(issue, issue)))
    assert samples(state, "nodetopo_probe_issues") == {("nvml",): 2.0}


def test_the_kubelets_devices_are_counted_by_health() -> None:
    devices = {"nvidia.com/gpu": {"healthy": 7, "unhealthy": 1}}
    state = MetricsState(snapshot=None, devices=devices)
    assert samples(state, "nodetopo_devices") == {
        ("healthy", "nvidia.com/gpu"): 7.0,
        ("unhealthy", "nvidia.com/gpu"): 1.0,
    }


def test_a_resource_that_another_plugin_took_is_told_from_those_it_did_not() -> None:
    state = MetricsState(
        snapshot=None,
        is_registered={"nvidia.com/gpu": False, "nvidia.com/mig-1g.10gb": True},
        conflicts={"nvidia.com/gpu": "another plugin serves it"},
    )
    assert samples(state, "nodetopo_resource_conflict") == {
        ("nvidia.com/gpu",): 1.0,
        ("nvidia.com/mig-1g.10gb",): 0.0,
    }


def test_allocations_are_counted_by_resource() -> None:
    state = MetricsState(snapshot=None, allocations={"nvidia.com/gpu": 12})
    assert samples(state, "nodetopo_allocations_total") == {("nvidia.com/gpu",): 12.0}


GPU0 = "GPU-00000140-0000-4000-8000-000000000000"
FORGOTTEN = "GPU-99999999-0000-4000-8000-000000000000"
BROKEN = GpuHealth(is_healthy=False, reason="Xid79", said="fell off", kind=HealthClass.REBOOT)
WORN = GpuHealth(is_degraded=True, reason="Xid63", said="worn", kind=HealthClass.DEGRADED)


def with_health(view: HealthView) -> MetricsState:
    node = machine("l40s-pcie-4")
    return MetricsState(snapshot=dataclasses.replace(node, gpus=node.gpus[:1]), health=view)


def test_a_sound_gpu_is_healthy_and_has_no_trouble() -> None:
    state = with_health({})
    assert samples(state, "nodetopo_gpu_healthy") == {("0", GPU0): 1.0}
    assert samples(state, "nodetopo_gpu_degraded") == {("0", GPU0): 0.0}
    assert samples(state, "nodetopo_gpu_health_info") == {}


def test_an_unhealthy_gpu_says_why() -> None:
    state = with_health({GPU0: BROKEN})
    assert samples(state, "nodetopo_gpu_healthy") == {("0", GPU0): 0.0}
    # class, gpu, reason, uuid
    assert samples(state, "nodetopo_gpu_health_info") == {("reboot", "0", "Xid79", GPU0): 1.0}


def test_a_degraded_gpu_is_healthy() -> None:
    state = with_health({GPU0: WORN})
    assert samples(state, "nodetopo_gpu_healthy") == {("0", GPU0): 1.0}
    assert samples(state, "nodetopo_gpu_degraded") == {("0", GPU0): 1.0}


def test_a_gpu_that_the_driver_forgot_is_told_by_its_uuid() -> None:
    found = samples(with_health({FORGOTTEN: BROKEN}), "nodetopo_gpu_healthy")
    assert found == {("0", GPU0): 1.0, ("", FORGOTTEN): 0.0}


def test_a_lost_gpu_is_unhealthy_where_health_is_not_watched() -> None:
    node = machine("l40s-pcie-4")
    lost = dataclasses.replace(node.gpus[0], is_lost=True)
    state = of(dataclasses.replace(node, gpus=(lost,)))
    assert samples(state, "nodetopo_gpu_healthy") == {("0", GPU0): 0.0}


def test_xids_are_counted_by_gpu_and_code() -> None:
    state = MetricsState(snapshot=None, xid_counts={(GPU0, 79): 1, (GPU0, 13): 400})
    assert samples(state, "nodetopo_xid_events_total") == {(GPU0, "79"): 1.0, (GPU0, "13"): 400.0}


def test_events_are_counted_by_what_became_of_them() -> None:
    state = MetricsState(snapshot=None, events_posted=3, events_dropped=2)
    assert samples(state, "nodetopo_kubernetes_events_total") == {
        ("posted",): 3.0,
        ("dropped",): 2.0,
    }


def test_readings_that_nvml_owes_are_told() -> None:
    state = MetricsState(snapshot=None, nvml_failures=4)
    assert samples(state, "nodetopo_nvml_failures_in_a_row") == {(): 4.0}


def test_the_configuration_in_force_is_named_where_something_chooses_one() -> None:
    chosen = MetricsState(snapshot=None, config="a100", config_failures=1)
    assert samples(chosen, "nodetopo_config_info") == {("a100",): 1.0}
    assert samples(chosen, "nodetopo_config_reload_failures_total") == {(): 1.0}
    assert samples(NOTHING, "nodetopo_config_info") == {}


def test_every_metric_of_ours_is_prefixed_and_explained() -> None:
    with served(of(machine("dgx-h100"))) as server:
        _, text = fetch(server.url)
    families = list(text_string_to_metric_families(text))
    odd = [
        family.name
        for family in families
        if not family.documentation or not family.name.startswith(("nodetopo_", "process_"))
    ]
    assert odd == []


def test_every_family_is_scraped_under_the_name_that_the_page_gives_it() -> None:
    state = MetricsState(
        snapshot=machine("dgx-h100"),
        registrations={"nvidia.com/gpu": 1},
        is_registered={"nvidia.com/gpu": True},
        devices={"nvidia.com/gpu": {"healthy": 8}},
        allocations={"nvidia.com/gpu": 1},
        check_counts={"health": {"pass": 9}},
        health={GPU0: BROKEN},
        xid_counts={(GPU0, 79): 1},
        config="a100",
    )
    issue = ProbeIssue(probe="nvml", subject="GPU0", reason="timeout")
    node = dataclasses.replace(machine("dgx-h100"), issues=(issue,))
    with served(dataclasses.replace(state, snapshot=node)) as server:
        _, text = fetch(server.url)
    found = {
        (sample.name, frozenset(sample.labels))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("nodetopo_")
    }
    assert found == {(family.full_name, frozenset(family.labels)) for family in FAMILIES}


def test_a_node_has_few_series() -> None:
    with served(with_health({})) as server:
        _, text = fetch(server.url)
    # As docs/metrics.md has it: 20 of the node, 9 of each GPU, one of each HCA; no resource here.
    series = [line for line in text.splitlines() if line.startswith("nodetopo_")]
    assert len(series) <= 20 + 9


def test_a_scraper_that_prefers_openmetrics_gets_it() -> None:
    with served(NOTHING) as server:
        _, text = fetch(server.url, accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


def test_the_agent_is_alive_before_the_first_scan() -> None:
    with served(NOTHING) as server:
        assert fetch(server.url.replace("/metrics", "/healthz")) == (200, "ok\n")


def test_nothing_of_the_hardware_makes_the_agent_dead() -> None:
    broken = dataclasses.replace(
        with_health({GPU0: BROKEN}), not_ready="NvmlUnresponsive: it hangs", nvml_failures=99
    )
    with served(broken) as server:
        assert fetch(server.url.replace("/metrics", "/healthz")) == (200, "ok\n")


def test_a_fault_in_what_is_told_does_not_make_the_agent_dead() -> None:
    def broken() -> MetricsState:
        raise AssertionError("asked for")

    server = serve_metrics("127.0.0.1:0", broken)
    try:
        assert fetch(server.url.replace("/metrics", "/healthz")) == (200, "ok\n")
    finally:
        server.close()


@pytest.mark.parametrize(
    ("age_s", "answer"),
    [
        (STUCK_S, (200, "ok\n")),
        (STUCK_S + 1, (503, "Stuck: the loop has not moved for 301 s\n")),
    ],
)
def test_an_agent_whose_loop_stands_still_is_dead(age_s: float, answer: tuple[int, str]) -> None:
    server = serve_metrics("127.0.0.1:0", lambda: NOTHING, lambda: age_s)
    try:
        assert fetch(server.url.replace("/metrics", "/healthz")) == answer
    finally:
        server.close()


def test_a_ready_agent_says_so() -> None:
    with served(NOTHING) as server:
        assert fetch(server.url.replace("/metrics", "/readyz")) == (200, "ok\n")
    assert samples(NOTHING, "nodetopo_ready") == {(): 1.0}


def test_an_agent_that_is_not_ready_gives_its_reasons() -> None:
    state = MetricsState(snapshot=None, not_ready="ResourceConflict: one — two\nNotRegistered: x")
    with served(state) as server:
        answer = fetch(server.url.replace("/metrics", "/readyz"))
    assert answer == (503, "ResourceConflict: one — two\nNotRegistered: x\n")
    assert samples(state, "nodetopo_ready") == {(): 0.0}


def test_other_paths_are_not_found() -> None:
    with served(NOTHING) as server:
        assert fetch(server.url.replace("/metrics", "/debug"))[0] == 404


def test_a_closed_server_frees_its_port() -> None:
    server = serve_metrics("127.0.0.1:0", lambda: NOTHING)
    port = server.url.removesuffix("/metrics").rpartition(":")[2]
    server.close()
    again = serve_metrics(f"127.0.0.1:{port}", lambda: NOTHING)
    again.close()


def test_an_address_in_use_is_named_with_the_flag() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InputError, match=f"{address}.*--metrics-address"):
            serve_metrics(address, lambda: NOTHING)


@pytest.mark.parametrize("address", ["", "9430", "localhost", "localhost:", ":9430", "h:99999"])
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="not an address"):
        serve_metrics(address, lambda: NOTHING)


def test_an_address_in_brackets_is_taken_of_either_family() -> None:
    server = serve_metrics("[127.0.0.1]:0", lambda: NOTHING)
    server.close()
    assert server.url.startswith("http://127.0.0.1:")
