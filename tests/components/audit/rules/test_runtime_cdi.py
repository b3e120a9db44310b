"""CDI specifications: which devices a runtime resolves, and whether it can apply the edits."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.machines.bundled import machine
from nodetopo.model.cdi import CdiFault, CdiSpec
from nodetopo.model.gpu import Gpu, Mig, MigInstance
from nodetopo.model.host import ContainerToolkit, RuntimeConfig
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import HOST, healthy, result

DRIVER = healthy().driver_version
UUIDS = tuple(str(gpu.uuid) for gpu in healthy().gpus)
CONTAINERD = RuntimeConfig(name="containerd", path="/etc/containerd/config.toml")
NVIDIA = replace(CONTAINERD, cdi=False, default_runtime="nvidia", nvidia_runtimes=("nvidia",))
RUN = "/var/run/cdi/b.yaml"
OLD = "535.54.03"


def _with(*specs: CdiSpec, **parts: object) -> Snapshot:
    host = replace(HOST, cdi_specs=specs, **parts)  # by name
    return replace(healthy(), host=host)


def _spec(
    kind: str | None = "nvidia.com/gpu", driver: str | None = DRIVER, *reasons: str
) -> CdiSpec:
    return CdiSpec(
        path="/etc/cdi/a.yaml",
        kind=kind,
        devices=("all",),
        driver_version=driver,
        faults=tuple(CdiFault(reason=reason) for reason in reasons),
    )


def _observed(snapshot: Snapshot, code: str = "RUN-003") -> list[str]:
    return [one.observed for one in result(code, snapshot).findings]


@pytest.mark.parametrize("kind", ["nvidia.com/gpu", "management.nvidia.com/gpu", "our.io/gpu"])
def test_a_specification_of_another_driver_is_found(kind: str) -> None:
    found = result("RUN-003", _with(_spec(kind, OLD)))
    assert found.findings == (
        Finding(
            subject="/etc/cdi/a.yaml",
            observed=f"mounts the libraries of driver {OLD}",
            expected=f"those of the loaded driver, {DRIVER}",
        ),
    )


def test_faults_are_found_and_counted() -> None:
    reasons = [f"names /dev/nvidia{number}, which does not exist" for number in range(6)]
    snapshot = _with(_spec("nvidia.com/gpu", DRIVER, *reasons))
    assert _observed(snapshot) == [f"{'; '.join(reasons[:4])} and 2 more"]


def test_a_fault_of_a_device_that_another_file_overrides_is_none() -> None:
    fault = CdiFault(reason="names /dev/x, which does not exist", devices=("0",))
    low = replace(_spec(), devices=("all", "0"), faults=(fault,))
    high = replace(_spec(), path=RUN, devices=("0",))
    assert _observed(_with(low, high)) == []
    assert _observed(_with(low, replace(high, path="/opt/cdi/c.yaml"))) == [fault.reason]
    assert _observed(_with(low, replace(high, error="no devices"))) == [fault.reason]


def test_a_leftover_that_another_file_overrides_is_harmless() -> None:
    old = _spec("nvidia.com/gpu", OLD, "mounts /usr/lib/libcuda.so.535.54.03, which does not exist")
    assert result("RUN-003", _with(old)).verdict is Verdict.FAIL
    found = result("RUN-003", _with(old, replace(_spec(), path=RUN)))
    assert (found.verdict, found.skipped) == (Verdict.PASS, None)
    upside_down = result("RUN-003", _with(replace(old, path=RUN), _spec()))
    assert {one.subject for one in upside_down.findings} == {RUN}


def test_an_invalid_file_whose_devices_another_defines_is_harmless() -> None:
    broken = replace(_spec(), error="unknown field x")
    assert result("RUN-003", _with(broken)).verdict is Verdict.FAIL
    assert result("RUN-003", _with(broken, replace(_spec(), path=RUN))).verdict is Verdict.PASS


def test_a_file_of_nvidias_that_is_no_specification_is_found_where_it_is_the_only_one() -> None:
    garbled = CdiSpec(path="/etc/cdi/nvidia.yaml", error="not YAML")
    assert _observed(_with(garbled)) == ["invalid, and so ignored: not YAML"]
    assert result("RUN-003", _with(garbled, _spec())).verdict is Verdict.PASS


def test_a_device_of_two_files_of_one_directory_is_found() -> None:
    both = _with(_spec(), replace(_spec(), path="/etc/cdi/b.yaml"))
    assert result("RUN-003", both).findings == (
        Finding(
            subject="/etc/cdi/a.yaml and /etc/cdi/b.yaml",
            observed="both define all, which CDI then drops",
            expected="one file for each device of a directory",
        ),
    )


def test_a_file_that_cannot_be_read_is_unknown_with_the_reason() -> None:
    issue = ProbeIssue(probe="host", subject="etc/cdi/a.yaml", reason="EACCES: denied")
    snapshot = replace(_with(CdiSpec(path="/etc/cdi/a.yaml")), issues=(issue,))
    found = result("RUN-003", snapshot)
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("/etc/cdi/a.yaml (etc/cdi/a.yaml: EACCES: denied)",),
    )


def test_a_path_that_cannot_be_seen_is_unknown() -> None:
    found = result("RUN-003", _with(replace(_spec(), unseen=("/dev/nvidia0",))))
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("whether /dev/nvidia0 of /etc/cdi/a.yaml exist",),
    )


@pytest.mark.parametrize("kind", ["amd.com/gpu", "notnvidia.com/gpu", None])
def test_specifications_of_others_do_not_count(kind: str | None) -> None:
    other = CdiSpec(path="/etc/cdi/a.yaml", kind=kind, error=None if kind else "no content")
    assert result("RUN-003", _with(other)).skipped == "no CDI specification of GPUs"


def test_a_specification_by_uuid_names_every_gpu() -> None:
    assert _observed(_with(replace(_spec(), devices=("0", "all")))) == []
    assert _observed(_with(replace(_spec(), devices=(*UUIDS, "all")))) == []
    assert _observed(_with(replace(_spec(), devices=(*UUIDS[1:], "GPU-gone")))) == [
        f"does not name {UUIDS[0]}, but 1 that this node does not have"
    ]
    lost = replace(healthy().gpus[0], is_lost=True)
    snapshot = _with(replace(_spec(), devices=UUIDS[1:]))
    assert _observed(replace(snapshot, gpus=(lost, *snapshot.gpus[1:]))) == []


def _split(gpu: Gpu, *names: str) -> Gpu:
    instances = tuple(MigInstance(uuid=name) for name in names)
    return replace(gpu, mig=Mig(is_enabled=True, instances=instances))


def test_mig_devices_made_after_the_specification_are_found() -> None:
    snapshot = _with(replace(_spec(), devices=("MIG-old-0", "MIG-old-1", *UUIDS[1:])))
    first, *rest = snapshot.gpus
    changed = replace(snapshot, gpus=(_split(first, "MIG-new"), *rest))
    assert _observed(changed) == [
        "does not name MIG-new, but 2 that this node does not have",
    ]
    same = replace(snapshot, gpus=(_split(first, "MIG-old-0", "MIG-old-1"), *rest))
    assert _observed(same) == []


@pytest.mark.parametrize(
    ("mode", "skipped"),
    [("auto", "the toolkit's mode is auto"), (None, "the toolkit's mode is auto"), ("cdi", None)],
)
def test_only_mode_cdi_needs_a_specification(mode: str | None, skipped: str | None) -> None:
    toolkit = ContainerToolkit(path="/etc/t.toml", mode=mode)
    found = result("RUN-004", _with(toolkit=toolkit, runtime_configs=(NVIDIA,)))
    assert found.skipped == skipped
    assert [one.observed for one in found.findings] == (
        [] if skipped else ["mode cdi, and no device of nvidia.com/gpu in /etc/cdi or /var/run/cdi"]
    )


@pytest.mark.parametrize(
    ("kind", "devices", "default_kind", "observed"),
    [
        ("nvidia.com/gpu", UUIDS, None, None),
        ("nvidia.com/gpu", tuple(map(str, range(8))), None, None),
        ("nvidia.com/gpu", ("0:0", *map(str, range(1, 8))), None, None),
        ("nvidia.com/gpu", ("all",), None, "mode cdi, and GPU0, GPU1, GPU2, GPU3 and 4 more not"),
        ("nvidia.com/gpu", UUIDS[1:], None, "mode cdi, and GPU0 not named"),
        ("management.nvidia.com/gpu", ("all",), None, "mode cdi, and no device of nvidia.com/gpu"),
        (
            "management.nvidia.com/gpu",
            ("all",),
            "management.nvidia.com/gpu",
            "mode cdi, and GPU0, GPU1, GPU2, GPU3 and 4 more not named by a specification of manag",
        ),
        ("my.nvidia.com/gpu", UUIDS, "my.nvidia.com/gpu", None),
    ],
)
def test_mode_cdi_takes_gpus_of_its_default_kind(
    kind: str, devices: tuple[str, ...], default_kind: str | None, observed: str | None
) -> None:
    toolkit = ContainerToolkit(path="/etc/t.toml", mode="cdi", cdi_kind=default_kind)
    spec = replace(_spec(kind), devices=devices)
    found = _observed(_with(spec, toolkit=toolkit, runtime_configs=(NVIDIA,)), "RUN-004")
    assert [text.startswith(observed or "-") for text in found] == ([True] if observed else [])


def test_mode_cdi_looks_into_its_own_directories() -> None:
    spec = replace(_spec(), devices=UUIDS)
    toolkit = ContainerToolkit(path="/etc/t.toml", mode="cdi", cdi_dirs=("/opt/cdi",))
    found = _observed(_with(spec, toolkit=toolkit, runtime_configs=(NVIDIA,)), "RUN-004")
    assert found == ["mode cdi, and no device of nvidia.com/gpu in /opt/cdi"]
    moved = replace(spec, path="/opt/cdi/x.json")
    assert not _observed(_with(moved, toolkit=toolkit, runtime_configs=(NVIDIA,)), "RUN-004")


def test_every_bundled_machine_has_a_specification_of_its_gpus() -> None:
    for name in ("dgx-h100", "h100-vm-8", "gb200-nvl72"):
        found = result("RUN-003", machine(name))
        assert (found.verdict, found.skipped) == (Verdict.PASS, None)


@pytest.mark.parametrize(
    ("cdi", "runtimes", "mode", "is_used"),
    [
        (False, (), None, False),
        (False, ("nvidia",), "legacy", False),
        (False, ("nvidia",), "auto", True),
        (False, ("nvidia",), "cdi", True),
        (True, (), None, True),
        (True, ("nvidia",), "legacy", True),
        (None, (), None, True),
    ],
)
def test_an_old_specification_that_nobody_heeds_is_no_fault(
    cdi: bool | None, runtimes: tuple[str, ...], mode: str | None, *, is_used: bool
) -> None:
    config = replace(CONTAINERD, cdi=cdi, nvidia_runtimes=runtimes)
    toolkit = ContainerToolkit(path="/etc/nvidia-container-runtime/config.toml", mode=mode)
    spec = _spec("nvidia.com/gpu", OLD)
    found = result("RUN-003", _with(spec, runtime_configs=(config,), toolkit=toolkit))
    assert found.verdict is (Verdict.FAIL if is_used else Verdict.PASS)
    assert found.skipped == (None if is_used else "no container here gets devices by CDI")


@pytest.mark.parametrize("configs", [None, ()])
def test_a_runtime_that_is_not_known_may_heed_a_specification(
    configs: tuple[RuntimeConfig, ...] | None,
) -> None:
    spec = _spec("nvidia.com/gpu", OLD)
    found = result("RUN-003", _with(spec, runtime_configs=configs))
    assert found.verdict is Verdict.FAIL
