"""KUB-021: which releases have which bug, and on which nodes it matters."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.components.audit.rules.kubelet import known_bugs
from nodetopo.components.audit.rules.kubelet.inputs import ATTRIBUTES
from nodetopo.model.kubelet_state import CpuState, KubeletState
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import NODE, SETTINGS, healthy, result
from tests.components.audit.rules.kubelet.kubelet_node import missing, node, skipped
from tests.listed_pods import listed_pod

RESTARTS = "ends running pods with devices when it restarts (kubernetes issue 118559)"
DEVICES = (
    "goes through all subsets of the NUMA nodes for each pod with devices, and stalls"
    " (kubernetes issue 135541)"
)
CORES = (
    "rejects running pods when it restarts, if a container has more exclusive CPUs than are then "
    "free in whole cores (kubernetes issue 129078)"
)
MEMORY = (
    "goes through all subsets of the NUMA nodes for each Guaranteed pod, and stalls"
    " (kubernetes issue 135541)"
)


def of(version: str, count: int = 2, **settings: Any) -> Snapshot:
    """Return a node of *count* NUMA nodes whose kubelet has *version* and no CPU option."""
    settings.setdefault("cpu_manager_options", {})
    nodes = tuple(NumaNode(id=number, cpus=CpuSet()) for number in range(count))
    status = replace(NODE, kubelet_version=version)
    return replace(node(**settings), numa_nodes=nodes, node_status=status)


def found(snapshot: Snapshot) -> list[tuple[str, str, str]]:
    return [
        (one.subject, one.observed, one.expected) for one in result("KUB-021", snapshot).findings
    ]


@pytest.mark.parametrize(
    ("release", "first", "cured"), [("1.25", 10, 14), ("1.26", 5, 9), ("1.27", 2, 6)]
)
def test_running_pods_end_from_the_first_release_with_the_bug_to_the_last(
    release: str, first: int, cured: int
) -> None:
    """First and cured as pkg/kubelet/cm/devicemanager/manager.go of these releases has it."""
    has = {patch for patch in range(20) if found(of(f"v{release}.{patch}"))}
    assert has == set(range(first, cured))


@pytest.mark.parametrize("release", ["1.24", "1.28", "1.36"])
def test_other_releases_end_no_pods(release: str) -> None:
    assert not any(found(of(f"v{release}.{patch}")) for patch in range(20))


@pytest.mark.parametrize("version", ["v1.25", "v1.26", "v1.27"])
def test_a_release_without_a_patch_number_is_not_accused(version: str) -> None:
    assert found(of(version)) == []


def whole(version: str, held: str | None) -> Snapshot:
    """Return a node with full-pcpus-only on which one container holds the CPUs *held*."""
    snapshot = of(version, cpu_manager_options={"full-pcpus-only": "true"})
    online = CpuSet.of(range(16))
    cores = tuple(CpuSet.of((cpu, cpu + 8)) for cpu in range(8))
    cpus = CpuSet.parse(held or "")
    state = CpuState(
        policy="static",
        default=CpuSet(online.cpus - cpus.cpus),
        entries={"u-1": {"train": cpus}} if held else {},
    )
    settings = replace(SETTINGS, cpu_manager_options={"full-pcpus-only": "true"})
    settings = replace(settings, reserved_system_cpus="0")
    return replace(
        snapshot,
        cpu=CpuTopology(online=online, cores=cores, smt=True),
        kubelet=settings,
        kubelet_on_disk=settings,
        kubelet_state=KubeletState(cpu=state),
    )


@pytest.mark.parametrize(
    ("held", "now"),
    [
        (None, ""),
        ("1-3,9-11", ""),
        # 15 of 16 are not reserved, but the other thread of a reserved core is no whole core.
        ("1-4,9-12", "; now container train of pod u-1 has 8, and 6 are free"),
    ],
)
def test_whole_cores_endanger_running_pods_before_release_1_37(held: str | None, now: str) -> None:
    cure = (
        "1.37 or newer, a build with pull request 129079, or the node drained before each restart "
        "of the kubelet"
    )
    assert found(whole("v1.36.3", held)) == [("kubelet v1.36.3", f"{CORES}{now}", cure)]
    assert found(whole("v1.37.0", held)) == []


def test_what_pods_hold_is_not_judged_without_state_or_reserved_cpus() -> None:
    full = whole("v1.36.3", "1-4,9-12")
    by_amount = replace(SETTINGS, reserved_system_cpus="")
    for unknown in (
        replace(full, kubelet_state=None),
        replace(full, cpu=None),
        replace(full, kubelet=by_amount, kubelet_on_disk=by_amount),
    ):
        assert [observed for _, observed, _ in found(unknown)] == [CORES]


def test_other_cpu_policies_and_options_endanger_no_pod() -> None:
    only = {"full-pcpus-only": "true"}
    assert found(of("v1.36.3", cpu_manager_policy="none", cpu_manager_options=only)) == []
    assert found(of("v1.36.3", cpu_manager_options={"full-pcpus-only": "false"})) == []
    assert missing("KUB-021", of("v1.36.3", cpu_manager_options=None)) == (
        "cpuManagerPolicyOptions",
    )


@pytest.mark.parametrize(
    ("version", "caution"),
    [
        ("v1.35.3", f"but kubelet v1.35.3 then {DEVICES}, safe is 1.36 or newer, or a build"),
        (None, f"but a kubelet with this bug then {DEVICES}, safe is 1.36 or newer, or a build"),
        ("v1.36.0", None),
    ],
)
def test_a_change_that_brings_a_bug_about_is_told_with_the_release(
    version: str | None, caution: str | None
) -> None:
    idle = of(version or "", 17, topology_manager_policy="none", memory_manager_policy="None")
    aligned = of(version or "", 17, memory_manager_policy="None")
    told = known_bugs.caution(idle, aligned)
    assert told is None if caution is None else told is not None and told.startswith(caution)
    assert known_bugs.caution(aligned, aligned) is None


def test_a_remedy_comes_with_the_bug_that_it_brings_about() -> None:
    """KUB-001 gives exclusive CPUs, which the stated option then counts in whole cores."""
    options = {"full-pcpus-only": "true"}
    shared = of("v1.36.3", cpu_manager_policy="none", cpu_manager_options=options)
    shared = replace(shared, numa_nodes=healthy().numa_nodes)
    told = result("KUB-001", shared)
    assert told.caution is not None
    assert told.remedy == f"{told.rule.remedy}; {told.caution}"
    assert CORES in told.remedy
    newer = replace(shared, node_status=replace(NODE, kubelet_version="v1.37.1"))
    assert result("KUB-001", newer).remedy == told.rule.remedy


def test_each_bug_is_told_with_its_cure() -> None:
    assert result("KUB-021", of("v1.27.3", 17)).verdict is Verdict.WARN
    assert found(of("v1.27.3", 17)) == [
        ("kubelet v1.27.3", RESTARTS, "1.25.14, 1.26.9, 1.27.6 or newer"),
        ("kubelet v1.27.3", DEVICES, "1.36 or newer, or a build with pull request 138244"),
        ("kubelet v1.27.3", MEMORY, "memoryManagerPolicy None on nodes with this many NUMA nodes"),
    ]


@pytest.mark.parametrize(
    ("version", "texts"),
    [
        ("v1.24.17", [DEVICES, MEMORY]),
        ("v1.35.99", [DEVICES, MEMORY]),
        ("v1.36.0", [MEMORY]),
        ("v1.37.9", [MEMORY]),
        ("v1.38.0", []),  # nobody has looked at its sources
        ("v2.0.0", []),
    ],
)
def test_many_numa_nodes_stall_the_releases_whose_sources_say_so(
    version: str, texts: list[str]
) -> None:
    assert [observed for _, observed, _ in found(of(version, 17))] == texts


def test_memory_of_many_nodes_stalls_without_a_topology_manager_too() -> None:
    alone = of("v1.36.3", 34, topology_manager_policy="none", memory_manager_policy="Static")
    assert [observed for _, observed, _ in found(alone)] == [MEMORY]
    assert found(of("v1.36.3", 16, topology_manager_policy="none")) == []


@pytest.mark.parametrize(
    "policy", ["cpuManagerPolicy", "topologyManagerPolicy", "memoryManagerPolicy"]
)
def test_a_policy_that_was_not_read_is_unknown(policy: str) -> None:
    assert missing("KUB-021", of("v1.36.3", 2, **{ATTRIBUTES[policy]: None})) == (policy,)


@pytest.mark.parametrize("version", ["", "master"])
def test_many_nodes_prove_nothing_of_a_release_that_is_not_known(version: str) -> None:
    assert missing("KUB-021", of(version, 17)) == ("version of the kubelet",)


def test_without_settings_only_what_needs_none_is_found() -> None:
    bare = replace(of("v1.27.3", 17), kubelet=None, kubelet_on_disk=None)
    assert [observed for _, observed, _ in found(bare)] == [RESTARTS]
    assert result("KUB-021", bare).missing == ("kubelet settings",)


def test_numa_nodes_that_were_not_read_are_unknown() -> None:
    assert missing("KUB-021", replace(of("v1.35.3"), numa_nodes=None)) == ("NUMA nodes",)


def test_all_that_is_not_known_is_named() -> None:
    bare = replace(healthy(), kubelet=None, numa_nodes=None, node_status=None)
    assert missing("KUB-021", replace(bare, kubelet_on_disk=None)) == (
        "NUMA nodes",
        "kubelet settings",
        "version of the kubelet",
    )


def test_a_node_without_gpus_has_no_bug_to_fear() -> None:
    snapshot = replace(of("v1.27.3", 17), gpus=())
    assert skipped("KUB-021", snapshot) is not None
    assert found(snapshot) == []


GPU, HCA = "nvidia.com/gpu", "rdma/hca"
TWICE = (
    "gives a device to two pods, if its pods are listed while it allocates"
    " (docs/internals/kubelet-list.md)"
)


def holding(version: str, **pods: dict[str, tuple[str, ...]]) -> Snapshot:
    """Return a node of which each pod has devices, all in its first container."""
    return replace(
        of(version),
        pods=tuple(
            listed_pod("ml", name, {"work": held, "log": {}}) for name, held in pods.items()
        ),
    )


@pytest.mark.parametrize("version", ["v1.34.1", "v1.35.0", "v1.36.3", "v1.37.1"])
def test_a_device_that_two_pods_have_is_found_in_releases_that_can_give_it_twice(
    version: str,
) -> None:
    node = holding(version, a={GPU: ("g0", "g1"), HCA: ("h0",)}, b={GPU: ("g1", "g2")})
    cure = "each device with one pod: delete the pods that share one, but for one of them"
    observed = f"{TWICE}; now pods ml/a and ml/b have nvidia.com/gpu g1"
    assert found(node) == [(f"kubelet {version}", observed, cure)]


def test_several_devices_and_pods_are_one_finding() -> None:
    node = holding("v1.37.1", a={GPU: ("g0", "g1")}, b={GPU: ("g1", "g0")}, c={GPU: ("g0",)})
    ((_, observed, _),) = found(node)
    assert observed.endswith("now pods ml/a and ml/b and ml/c have nvidia.com/gpu g0, and 1 more")


@pytest.mark.parametrize("version", ["v1.33.5", "v1.38.0"])
def test_releases_that_list_ended_pods_or_were_not_read_are_not_accused(version: str) -> None:
    assert found(holding(version, a={GPU: ("g0",)}, b={GPU: ("g0",)})) == []


def test_a_kubelet_that_is_to_list_ended_pods_is_not_accused() -> None:
    node = holding("v1.37.1", a={GPU: ("g0",)}, b={GPU: ("g0",)})
    assert len(found(node)) == 1
    gates = {"KubeletPodResourcesListUseActivePods": False}
    assert found(replace(node, kubelet=replace(SETTINGS, feature_gates=gates))) == []


def test_a_name_that_two_resources_share_is_no_device_given_twice() -> None:
    assert found(holding("v1.37.1", a={GPU: ("0",)}, b={HCA: ("0",)})) == []


def test_whether_a_device_was_given_twice_is_unknown_without_pods() -> None:
    assert missing("KUB-021", replace(of("v1.36.3"), pods=None)) == ("pods",)
    assert result("KUB-021", replace(of("v1.33.5"), pods=None)).missing == ()


def test_a_change_of_settings_does_not_bring_about_what_pods_have_already() -> None:
    node = holding("v1.37.1", a={GPU: ("g0",)}, b={GPU: ("g0",)})
    assert known_bugs.caution(node, node) is None
