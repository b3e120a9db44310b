"""Counters of the kubelet, and texts that only look like them."""

import pytest

from nodetopo.errors import DecodeError
from nodetopo.model.kubelet import KubeletMetrics
from nodetopo.probes.kubelet.metrics import metrics_from_text

BUILD = 'kubernetes_build_info{git_version="v1.36.3",major="1",minor="36"} 1\n'
BUCKET = 'kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="%s",le="%s"} %s\n'
COUNT = 'kubelet_device_plugin_alloc_duration_seconds_count{resource_name="%s"} %s\n'


def allocations(resource: str, fast: int, all_of_them: int) -> str:
    return (
        BUCKET % (resource, "0.5", 0)
        + BUCKET % (resource, "1", fast)
        + BUCKET % (resource, "+Inf", all_of_them)
        + COUNT % (resource, all_of_them)
    )


def test_the_counters_are_read_and_all_others_passed_over() -> None:
    text = (
        "# HELP kubelet_admission_rejections_total [ALPHA] Cumulative number\n"
        "# TYPE kubelet_admission_rejections_total counter\n"
        'kubelet_admission_rejections_total{reason="TopologyAffinityError"} 3\n'
        'kubelet_admission_rejections_total{reason="OutOfcpu"} 1e+06\n'
        "kubelet_topology_manager_admission_errors_total 4\n"
        "kubelet_topology_manager_admission_requests_total 9\n"
        "go_goroutines not-a-number\n" + BUILD + allocations("nvidia.com/gpu", 6, 8)
    )
    assert metrics_from_text(text) == KubeletMetrics(
        rejections={"TopologyAffinityError": 3, "OutOfcpu": 1_000_000},
        topology_errors=4,
        slow_allocations={"nvidia.com/gpu": 0.25},
    )


def test_nothing_counted_yet_is_zero_where_the_version_counts() -> None:
    assert metrics_from_text(BUILD).rejections == {}
    assert metrics_from_text(BUILD.replace("v1.36.3", "v1.31.0")).rejections is None
    assert metrics_from_text(BUILD.replace("v1.36.3", "unknown")).rejections is None


def test_a_counter_that_the_kubelet_lacks_is_unknown() -> None:
    assert metrics_from_text(BUILD).topology_errors is None


def test_a_resource_that_was_never_asked_for_is_left_out() -> None:
    text = allocations("a/b", 0, 0) + allocations("c/d", 2, 2)
    assert metrics_from_text(text).slow_allocations == {"c/d": 0.0}


def test_labels_are_unescaped() -> None:
    text = r'kubelet_admission_rejections_total{reason="a\"b\\c\nd,e=\"f"} 1'
    assert metrics_from_text(text).rejections == {'a"b\\c\nd,e="f': 1}


@pytest.mark.parametrize("text", ["", "<html></html>", "go_goroutines 5\n"])
def test_a_text_without_them_is_of_no_kubelet(text: str) -> None:
    with pytest.raises(DecodeError, match="no metrics of a kubelet"):
        metrics_from_text(text)


@pytest.mark.parametrize(
    "line",
    [
        "kubelet_topology_manager_admission_errors_total",
        "kubelet_topology_manager_admission_errors_total x",
        "kubelet_topology_manager_admission_errors_total NaN",
        "kubelet_topology_manager_admission_errors_total +Inf",
        "kubelet_topology_manager_admission_errors_total -1",
        'kubelet_admission_rejections_total{reason="x} 1',
        "kubelet_admission_rejections_total{reason=x} 1",
    ],
)
def test_a_malformed_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(DecodeError, match=r"^line 2: "):
        metrics_from_text(f"{BUILD}{line}\n")


def test_thousands_of_reasons_are_refused() -> None:
    lines = (f'kubelet_admission_rejections_total{{reason="{n}"}} 1' for n in range(5000))
    with pytest.raises(DecodeError, match="more than 4096 series"):
        metrics_from_text("\n".join(lines))
