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
from agent.machines.bundled import machine
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.publish.metrics import MetricsServer, MetricsState, serve_metrics

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


def test_a_scraper_that_prefers_openmetrics_gets_it() -> None:
    with served(NOTHING) as server:
        _, text = fetch(server.url, accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


def test_health_is_told_before_the_first_scan() -> None:
    with served(NOTHING) as server:
        assert fetch(server.url.replace("/metrics", "/healthz")) == (200, "ok\n")


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
