"""What cgroups tell of pods: every layout, every runtime, and what must not be guessed."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import Container, Pod
from nodetopo.probes.pods.cgroups import with_cgroups
from tests.probes.pods.cgroup_tree import (
    APP,
    MONITOR,
    SANDBOX,
    SIDE,
    UID,
    UNIT,
    Files,
    group,
    old_group,
    split,
    unified,
)

PINNED = CpuSet.parse("2-3")
POD = Pod(namespace="ml", name="train", uid=UID, containers=(Container(name="app", id=APP),))
BLIND = Pod(
    namespace="ml",
    name="train",
    containers=(Container(name="app", cpus=PINNED), Container(name="side", cpus=CpuSet())),
)
UIDS = {("ml", "train"): UID}
TOLD = Container(name="app", id=APP, cpuset=CpuSet.parse("2-3"), memory_nodes=(0,), throttled=4)


def told(pod: Pod, sysfs: Path) -> tuple[Container, ...]:
    (found,) = with_cgroups(sysfs, (pod,), UIDS)
    return found.containers


@pytest.mark.parametrize(
    ("path", "qos"),
    [
        pytest.param(f"kubepods/pod{UID}/{APP}", "Guaranteed", id="cgroupfs, containerd"),
        pytest.param(f"kubepods/burstable/pod{UID}/{APP}", "Burstable", id="cgroupfs, Burstable"),
        pytest.param(
            f"kubepods/besteffort/pod{UID}/crio-{APP}", "BestEffort", id="cgroupfs, CRI-O"
        ),
        pytest.param(
            f"kubepods.slice/kubepods-pod{UNIT}.slice/cri-containerd-{APP}.scope",
            "Guaranteed",
            id="systemd, containerd",
        ),
        pytest.param(
            "kubepods.slice/kubepods-burstable.slice/"
            f"kubepods-burstable-pod{UNIT}.slice/crio-{APP}.scope",
            "Burstable",
            id="systemd, CRI-O",
        ),
        pytest.param(
            "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
            f"kubelet-kubepods-besteffort-pod{UNIT}.slice/cri-containerd-{APP}.scope",
            "BestEffort",
            id="kind",
        ),
        pytest.param(f"kubelet/kubepods/pod{UID}/{APP}", "Guaranteed", id="another cgroup root"),
    ],
)
def test_a_container_is_found_in_every_layout(tmp_path: Path, path: str, qos: str) -> None:
    sysfs = unified(tmp_path, {path: group("2-3", "0", throttled=4)})
    assert with_cgroups(sysfs, (POD,)) == (replace(POD, qos_class=qos, containers=(TOLD,)),)


@pytest.mark.parametrize("times", ["cpu,cpuacct", "cpu"])
def test_a_container_is_found_in_the_hierarchies_of_version_1(tmp_path: Path, times: str) -> None:
    sysfs = split(tmp_path, {f"kubepods/pod{UID}/{APP}": old_group("2-3", "0", throttled=4)}, times)
    assert told(POD, sysfs) == (TOLD,)


def test_effective_cpus_come_before_requested_ones_in_version_1(tmp_path: Path) -> None:
    files = {**old_group("0-7", "0-1", throttled=4), "cpuset.effective_cpus": "2-3\n"}
    files["cpuset.effective_mems"] = "0\n"
    assert told(POD, split(tmp_path, {f"kubepods/pod{UID}/{APP}": files})) == (TOLD,)


def test_a_group_without_the_controller_has_what_its_pod_has(tmp_path: Path) -> None:
    own = {"cpu.stat": "nr_throttled 4\n"}
    groups: dict[str, Files] = {
        f"kubepods/pod{UID}": group("2-3", "0"),
        f"kubepods/pod{UID}/{APP}": own,
    }
    assert told(POD, unified(tmp_path, groups)) == (TOLD,)


def test_a_class_that_is_known_is_kept(tmp_path: Path) -> None:
    sysfs = unified(tmp_path, {f"kubepods/pod{UID}/{APP}": group("2-3")})
    (found,) = with_cgroups(sysfs, (replace(POD, qos_class="Burstable"),))
    assert found.qos_class == "Burstable"


def test_a_static_pod_is_found_by_the_id_of_its_container(tmp_path: Path) -> None:
    sysfs = unified(tmp_path, {f"kubepods/pod{'9' * 32}/{APP}": group("2-3", "0", throttled=4)})
    (found,) = with_cgroups(sysfs, (POD,))
    assert (found.qos_class, found.containers) == ("Guaranteed", (TOLD,))


def test_pods_of_others_and_monitors_are_not_mixed_in(tmp_path: Path) -> None:
    other = UNIT.replace("1", "9")
    top = "kubepods.slice"
    sysfs = unified(
        tmp_path,
        {
            f"{top}/kubepods-pod{UNIT}.slice/crio-{APP}.scope": group("2-3", "0", throttled=4),
            f"{top}/kubepods-pod{UNIT}.slice/crio-conmon-{MONITOR}.scope": group("0-63"),
            f"{top}/kubepods-pod{other}.slice/crio-{SIDE}.scope": group("8-9"),
        },
    )
    assert told(replace(POD, containers=(Container(name="app"),)), sysfs) == (
        replace(TOLD, id=None),
    )


def shared(sandbox: Files, side: Files) -> dict[str, Files]:
    top = f"kubepods/pod{UID}"
    return {f"{top}/{APP}": group("2-3"), f"{top}/{SIDE}": side, f"{top}/{SANDBOX}": sandbox}


def test_containers_without_ids_are_known_by_their_exclusive_cpus(tmp_path: Path) -> None:
    sysfs = unified(tmp_path, shared(group("0-7", weight=1), group("0-1,4-7")))
    app, side = told(BLIND, sysfs)
    assert (app.cpuset, side.cpuset) == (PINNED, CpuSet.parse("0-1,4-7"))


def test_values_that_may_be_the_sandboxs_are_unknown(tmp_path: Path) -> None:
    sysfs = unified(tmp_path, shared(group("0-7", weight=1), group("0-1,4-7", weight=1)))
    app, side = told(BLIND, sysfs)
    assert (app.cpuset, side.cpuset) == (PINNED, None)


def test_a_container_of_least_weight_is_no_sandbox_by_itself(tmp_path: Path) -> None:
    sysfs = unified(tmp_path, {f"kubepods/besteffort/pod{UID}/{APP}": group("4-7", weight=1)})
    (app,) = told(replace(POD, containers=(Container(name="app", cpus=CpuSet()),)), sysfs)
    assert app.cpuset == CpuSet.parse("4-7")


def test_values_that_all_candidates_agree_on_count(tmp_path: Path) -> None:
    sysfs = unified(tmp_path, shared(group("0-7", "0-1"), group("0-7", "0-1", throttled=3)))
    _, side = told(BLIND, sysfs)
    assert (side.cpuset, side.memory_nodes, side.throttled) == (CpuSet.parse("0-7"), (0, 1), None)


def test_the_sandbox_of_version_1_has_two_shares(tmp_path: Path) -> None:
    top = f"kubepods/pod{UID}"
    sysfs = split(
        tmp_path, {f"{top}/{APP}": old_group("4-7"), f"{top}/{SANDBOX}": old_group("0-7", shares=2)}
    )
    (app,) = told(replace(POD, containers=(Container(name="app", cpus=CpuSet()),)), sysfs)
    assert app.cpuset == CpuSet.parse("4-7")


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param({}, id="no pods"),
        pytest.param({f"kubepods/pod{UID}/init.scope": group("2-3")}, id="no container"),
        pytest.param({f"kubepods/pod{UID}/{APP}": {}}, id="no files"),
        pytest.param(
            {
                f"kubepods/pod{UID}/{APP}": {
                    "cpuset.cpus.effective": "x",
                    "cpu.stat": "nr_throttled",
                }
            },
            id="nonsense",
        ),
    ],
)
def test_values_that_cannot_be_read_are_unknown(tmp_path: Path, groups: dict[str, Files]) -> None:
    assert told(POD, unified(tmp_path, groups)) == POD.containers


def test_a_machine_without_cgroups_leaves_pods_as_they_are(tmp_path: Path) -> None:
    assert with_cgroups(tmp_path, (POD, BLIND), UIDS) == (POD, BLIND)


def test_a_pod_without_uid_and_ids_stays_as_it_is(tmp_path: Path) -> None:
    sysfs = unified(tmp_path, {f"kubepods/pod{UID}/{APP}": group("2-3")})
    assert with_cgroups(sysfs, (BLIND,)) == (BLIND,)


def test_the_pods_of_the_kubelet_are_looked_for_no_deeper_than_they_are(tmp_path: Path) -> None:
    sysfs = unified(tmp_path, {f"a/b/c/kubepods/pod{UID}/{APP}": group("2-3")})
    assert told(POD, sysfs) == POD.containers
