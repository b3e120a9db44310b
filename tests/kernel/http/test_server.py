"""Metrics as Prometheus reads them."""

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from nodetopo.components.gpus.readiness import not_ready
from nodetopo.kernel.component import joined
from nodetopo.kernel.http.families import families, series
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import EccErrors, Fabric, FabricState, Mig, MigInstance, RemappedRows
from nodetopo.model.hca_health import HcaHealth
from nodetopo.model.nvml_event import NvmlStatus
from nodetopo.model.probe_issue import ProbeIssue
from tests.kernel.http.scraped import (
    BROKEN,
    FORGOTTEN,
    GPU0,
    NOTHING,
    WORN,
    fetch,
    of,
    samples,
    served,
    with_health,
)
from tests.kernel.readings import of_components, of_dra, readings, with_facts


def test_registrations_are_counted_by_resource() -> None:
    state = readings(registrations={"nvidia.com/gpu": 3})
    assert samples(state, "nodetopo_registrations_total") == {("nvidia.com/gpu",): 3.0}


def test_a_lost_registration_shows_as_zero() -> None:
    state = readings(is_registered={"nvidia.com/gpu": False})
    assert samples(state, "nodetopo_registered") == {("nvidia.com/gpu",): 0.0}


def test_what_becomes_of_labels_is_counted() -> None:
    state = readings(publish_writes=2, publish_errors=5, publish_refused=1)
    assert samples(state, "nodetopo_label_writes_total") == {(): 2.0}
    assert samples(state, "nodetopo_label_errors_total") == {(): 5.0}
    assert samples(state, "nodetopo_labels_refused") == {(): 1.0}


def test_what_becomes_of_zones_is_counted() -> None:
    state = readings(zone_writes=2, zone_errors=5)
    assert samples(state, "nodetopo_zone_writes_total") == {(): 2.0}
    assert samples(state, "nodetopo_zone_errors_total") == {(): 5.0}


def test_checks_are_counted_by_report_and_verdict() -> None:
    state = readings(check_counts={"audit": {"pass": 4, "fail": 1}})
    assert samples(state, "nodetopo_checks") == {("audit", "pass"): 4.0, ("audit", "fail"): 1.0}


def test_each_broken_check_is_named_with_its_report_and_verdict() -> None:
    broken = {"health": {}, "audit": {"KUB-003": "fail", "KRN-002": "warn"}}
    state = readings(checks_broken=broken)
    assert samples(state, "nodetopo_check_broken") == {
        ("KUB-003", "audit", "fail"): 1.0,
        ("KRN-002", "audit", "warn"): 1.0,
    }


def test_the_generation_is_told() -> None:
    state = readings(generation=7)
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


def test_gpus_over_the_sram_threshold_are_told_from_those_that_are_not_and_the_unknown() -> None:
    node = machine("l40s-pcie-4")
    known = zip(node.gpus, (True, False, None, None), strict=True)
    gpus = tuple(structs.replace(gpu, is_over_sram_threshold=it) for gpu, it in known)
    found = samples(of(structs.replace(node, gpus=gpus)), "nodetopo_gpu_sram_threshold_exceeded")
    assert found == {("0",): 1.0, ("1",): 0.0}


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        (None, {}),
        (Fabric(state=FabricState.NOT_SUPPORTED), {}),
        (Fabric(state=FabricState.IN_PROGRESS), {("0",): 0.0}),
        (Fabric(state=FabricState.COMPLETED, status=0), {("0",): 1.0}),
        (Fabric(state=FabricState.COMPLETED, status=999), {("0",): 0.0}),
    ],
)
def test_a_gpu_has_joined_its_fabric_or_not_or_has_none(
    fabric: Fabric | None, expected: dict[tuple[str, ...], float]
) -> None:
    node = machine("dgx-h100")
    gpu = structs.replace(node.gpus[0], fabric=fabric)
    found = samples(of(structs.replace(node, gpus=(gpu,))), "nodetopo_gpu_fabric_registered")
    assert found == expected


def test_worn_memory_is_counted_by_gpu() -> None:
    rows = RemappedRows(correctable=0, uncorrectable=1, is_pending=True, has_failed=False)
    worn = structs.replace(
        machine("dgx-h100").gpus[0], remapped_rows=rows, ecc_errors=EccErrors(volatile=3)
    )
    silent = structs.replace(worn, index=1, remapped_rows=None, ecc_errors=None)
    state = of(structs.replace(machine("dgx-h100"), gpus=(worn, silent)))
    assert samples(state, "nodetopo_gpu_row_remap_pending") == {("0",): 1.0}
    assert samples(state, "nodetopo_gpu_row_remap_failed") == {("0",): 0.0}
    assert samples(state, "nodetopo_gpu_uncorrectable_memory_errors_total") == {("0",): 3.0}


def test_mig_devices_are_counted_only_where_mig_is_on() -> None:
    node = machine("dgx-h100")
    devices = tuple(MigInstance(uuid=f"MIG-{number}") for number in range(7))
    modes = (None, Mig(is_enabled=False), Mig(is_enabled=True, instances=devices))
    gpus = (structs.replace(gpu, mig=mig) for gpu, mig in zip(node.gpus, modes, strict=False))
    state = of(structs.replace(node, gpus=tuple(gpus)))
    assert samples(state, "nodetopo_gpu_mig_devices") == {("2",): 7.0}


def test_an_hca_whose_health_is_not_watched_has_none() -> None:
    assert samples(of(machine("dgx-h100")), "nodetopo_hca_healthy") == {}


def test_unknown_facts_have_no_sample() -> None:
    node = machine("l40s-pcie-4")
    gpu = structs.replace(node.gpus[0], recovery_action=None)
    unknown = structs.replace(node, gpus=(gpu,))
    assert samples(of(unknown), "nodetopo_gpu_recovery_action") == {}


def test_what_could_not_be_read_is_counted_by_probe() -> None:
    issue = ProbeIssue(probe="nvml", subject="GPU0", reason="timeout")
    state = of(structs.replace(machine("l40s-pcie-4"), issues=(issue, issue)))
    assert samples(state, "nodetopo_probe_issues") == {("nvml",): 2.0}


def test_the_kubelets_devices_are_counted_by_health() -> None:
    devices = {"nvidia.com/gpu": {"healthy": 7, "unhealthy": 1}}
    state = readings(devices=devices)
    assert samples(state, "nodetopo_devices") == {
        ("healthy", "nvidia.com/gpu"): 7.0,
        ("unhealthy", "nvidia.com/gpu"): 1.0,
    }


def test_the_conflict_metric_names_only_resources_in_conflict() -> None:
    state = readings(
        is_registered={"nvidia.com/gpu": False, "nvidia.com/mig-1g.10gb": True},
        conflicts={"nvidia.com/gpu": "another plugin serves it"},
    )
    assert samples(state, "nodetopo_resource_conflict") == {
        ("nvidia.com/gpu",): 1.0,
        ("nvidia.com/mig-1g.10gb",): 0.0,
    }


def test_allocations_are_counted_by_resource() -> None:
    state = readings(allocations={"nvidia.com/gpu": 12})
    assert samples(state, "nodetopo_allocations_total") == {("nvidia.com/gpu",): 12.0}


def test_a_sound_gpu_is_healthy_and_has_no_trouble() -> None:
    state = with_health({})
    assert samples(state, "nodetopo_gpu_healthy") == {("0", GPU0): 1.0}
    assert samples(state, "nodetopo_gpu_degraded") == {("0", GPU0): 0.0}
    assert samples(state, "nodetopo_gpu_health_info") == {}


def test_an_unhealthy_gpu_has_its_reason() -> None:
    state = with_health({GPU0: BROKEN})
    assert samples(state, "nodetopo_gpu_healthy") == {("0", GPU0): 0.0}
    # class, gpu, reason, uuid
    assert samples(state, "nodetopo_gpu_health_info") == {("reboot", "0", "Xid79", GPU0): 1.0}


def test_a_degraded_gpu_is_healthy() -> None:
    state = with_health({GPU0: WORN})
    assert samples(state, "nodetopo_gpu_healthy") == {("0", GPU0): 1.0}
    assert samples(state, "nodetopo_gpu_degraded") == {("0", GPU0): 1.0}


def test_a_gpu_that_the_driver_forgot_is_named_by_its_uuid() -> None:
    found = samples(with_health({FORGOTTEN: BROKEN}), "nodetopo_gpu_healthy")
    assert found == {("0", GPU0): 1.0, ("", FORGOTTEN): 0.0}


def test_a_lost_gpu_is_unhealthy_where_health_is_not_watched() -> None:
    node = machine("l40s-pcie-4")
    lost = structs.replace(node.gpus[0], is_lost=True)
    state = of(structs.replace(node, gpus=(lost,)))
    assert samples(state, "nodetopo_gpu_healthy") == {("0", GPU0): 0.0}


def test_a_lost_gpu_has_no_number_of_nvlinks() -> None:
    node = machine("dgx-1v")
    lost = structs.replace(node.gpus[0], is_lost=True)
    links = tuple(link for link in node.nvlinks or () if link.gpu != 0)
    state = of(structs.replace(node, gpus=(lost, *node.gpus[1:]), nvlinks=links))
    found = samples(state, "nodetopo_gpu_nvlinks_active")
    assert found == {(str(index),): 6.0 for index in range(1, 8)}


def test_xids_are_counted_by_gpu_and_code() -> None:
    state = readings(xid_counts={(GPU0, 79): 1, (GPU0, 13): 400})
    assert samples(state, "nodetopo_xid_events_total") == {(GPU0, "79"): 1.0, (GPU0, "13"): 400.0}


def test_events_are_counted_by_what_became_of_them() -> None:
    state = readings(events_posted=3, events_dropped=2)
    assert samples(state, "nodetopo_kubernetes_events_total") == {
        ("posted",): 3.0,
        ("dropped",): 2.0,
    }


def test_readings_that_nvml_owes_are_told() -> None:
    state = readings(nvml_failures=4)
    assert samples(state, "nodetopo_nvml_failures_in_a_row") == {(): 4.0}


def test_the_configuration_in_force_is_named_where_something_chooses_one() -> None:
    chosen = readings(config="a100", config_failures=1)
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
    facts = of_components(
        kernel={"config": "a100"},
        gpus={
            "registrations": {"nvidia.com/gpu": 1},
            "is_registered": {"nvidia.com/gpu": True},
            "devices": {"nvidia.com/gpu": {"healthy": 8}},
            "allocations": {"nvidia.com/gpu": 1},
            "unchosen": {"nvidia.com/gpu": 0},
            "lookups": {"known": 1},
            "strategies": ("cdi-cri",),
            "health": {GPU0: BROKEN},
            "xid_counts": {(GPU0, 79): 1},
        },
        rdma={
            "hca_health": {"key": HcaHealth(name="mlx5_0", is_healthy=False, reason="HcaLost")},
            "hca_counters": {("mlx5_0", 1): {"link_downed": 1}},
        },
        dra=of_dra(),
        audit={
            "check_counts": {"health": {"pass": 9}},
            "checks_broken": {"audit": {"KUB-003": "fail"}},
            "pods_measured": {"aligned": 1},
            "pods_misaligned": {"QOS-001": 1},
        },
    )
    state = readings(machine("dgx-h100"), **facts)
    issue = ProbeIssue(probe="nvml", subject="GPU0", reason="timeout")
    node = structs.replace(machine("dgx-h100"), issues=(issue,))
    gpus = (structs.replace(gpu, is_over_sram_threshold=False) for gpu in node.gpus)
    first, *others = gpus
    first = structs.replace(first, mig=Mig(is_enabled=True))
    node = structs.replace(node, gpus=(first, *others))
    with served(with_facts(state, snapshot=node)) as server:
        _, text = fetch(server.url)
    found = {
        (sample.name, frozenset(sample.labels))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("nodetopo_")
    }
    assert found == {(family.full_name, frozenset(family.labels)) for _, family in families()}


def test_a_node_has_few_series() -> None:
    with served(with_health({})) as server:
        _, text = fetch(server.url)
    found = [line for line in text.splitlines() if line.startswith("nodetopo_")]
    assert len(found) <= series(gpus=1, hcas=0)


def test_a_node_on_which_no_way_hands_gpus_to_containers_is_not_ready() -> None:
    def reasons(**offered: bool) -> str | None:
        return joined(
            not_ready(
                snapshot=machine("dgx-h100"),
                nvml=NvmlStatus(),
                is_registered=offered,
                conflicts={},
                hand_over_problem="no way",
            )
        )

    assert reasons(gpu=True) == "NoHandOver: no way"
    assert reasons() is None  # nothing is offered
