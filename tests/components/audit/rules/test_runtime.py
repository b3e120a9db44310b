"""Control groups, CDI, and limits of container runtimes."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.cdi import CdiSpec
from nodetopo.model.hca import Hca, HcaKind
from nodetopo.model.host import ContainerToolkit, RuntimeConfig, RuntimeProcess
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import HOST, NODE, healthy, result

DRIVER = healthy().driver_version
PLUGINS = "k8s.device-plugin.nvidia.com/gpu"
CONTAINERD = RuntimeConfig(name="containerd", path="/etc/containerd/config.toml")


def _with(**parts: object) -> Snapshot:
    return replace(healthy(), host=replace(HOST, **parts))  # by name


def _spec(kind: str | None, driver: str | None = None) -> CdiSpec:
    return CdiSpec(path="/etc/cdi/a.yaml", kind=kind, devices=("all",), driver_version=driver)


@pytest.mark.parametrize(
    ("version", "observed"),
    [
        ("v1.34.9", "v1"),
        (None, "v1"),
        ("v1.35.0", "v1, on which this kubelet starts only with failCgroupV1: false"),
    ],
)
def test_cgroup_v1_is_found_with_what_the_kubelet_makes_of_it(
    version: str | None, observed: str
) -> None:
    snapshot = replace(_with(cgroup_version=1), node_status=replace(NODE, kubelet_version=version))
    assert result("RUN-001", snapshot).findings == (
        Finding(subject="/sys/fs/cgroup", observed=observed, expected="v2"),
    )


@pytest.mark.parametrize(
    ("runtime", "verdict"),
    [
        ("containerd://1.7.27", Verdict.FAIL),
        ("containerd://2.0.5", Verdict.PASS),
        ("cri-o://1.33.0", Verdict.UNKNOWN),
        (None, Verdict.UNKNOWN),
    ],
)
def test_cdi_that_no_file_states_depends_on_containerds_version(
    runtime: str | None, verdict: Verdict
) -> None:
    snapshot = replace(
        _with(cdi_specs=(_spec(PLUGINS),), runtime_configs=(CONTAINERD,)),
        node_status=replace(NODE, container_runtime=runtime),
    )
    assert result("RUN-005", snapshot).verdict is verdict


@pytest.mark.parametrize(
    ("kind", "count"),
    [(PLUGINS, 1), ("k8s.gpu.nvidia.com/claim", 1), ("nvidia.com/gpu", 0)],
)
def test_cdi_must_be_on_where_a_plugin_hands_devices_over_so(kind: str, count: int) -> None:
    config = replace(CONTAINERD, cdi=False)
    found = result("RUN-005", _with(cdi_specs=(_spec(kind),), runtime_configs=(config,)))
    assert len(found.findings) == count


def test_our_own_specification_counts_as_a_plugins() -> None:
    spec = _spec("device-plugin.nodetopo.io/gpu", DRIVER)
    config = replace(CONTAINERD, cdi=False)
    assert result("RUN-005", _with(cdi_specs=(spec,), runtime_configs=(config,))).findings


@pytest.mark.parametrize("kind", [PLUGINS, "device-plugin.nodetopo.io/gpu"])
def test_annotations_for_nvidias_runtime_need_no_cdi_of_the_one_that_calls_it(kind: str) -> None:
    config = replace(CONTAINERD, cdi=False, nvidia_runtimes=("nvidia",))
    snapshot = _with(cdi_specs=(_spec(kind, DRIVER),), runtime_configs=(config,))
    found = result("RUN-005", snapshot)
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("how the devices of /etc/cdi/a.yaml reach containers (device-list-strategy)",),
    )
    legacy = ContainerToolkit(path="/etc/nvidia-container-runtime/config.toml", mode="legacy")
    plain = _with(cdi_specs=(_spec(kind, DRIVER),), runtime_configs=(config,), toolkit=legacy)
    assert result("RUN-005", plain).verdict is Verdict.FAIL
    on = _with(cdi_specs=(_spec(kind, DRIVER),), runtime_configs=(replace(config, cdi=True),))
    assert result("RUN-005", on).verdict is Verdict.PASS


def test_what_a_driver_for_dra_hands_over_has_no_other_way() -> None:
    config = replace(CONTAINERD, cdi=False, nvidia_runtimes=("nvidia",))
    spec = _spec("k8s.gpu.nvidia.com/claim")
    found = result("RUN-005", _with(cdi_specs=(spec,), runtime_configs=(config,)))
    assert [one.observed for one in found.findings] == [
        "false, and a device plugin wrote /etc/cdi/a.yaml"
    ]


def _limited(memlock: int | None, files: int | None, **config: int) -> Snapshot:
    return _with(
        runtimes=(RuntimeProcess(name="containerd", memlock_bytes=memlock, open_files=files),),
        runtime_configs=(replace(CONTAINERD, **config),),  # by name
    )


@pytest.mark.parametrize(
    ("code", "snapshot", "observed"),
    [
        ("RUN-006", _limited(65536, -1), "64Ki for containers without the capability"),
        ("RUN-006", _limited(-1, -1, memlock_bytes=4096), "4Ki"),
        ("RUN-006", _limited(65536, -1, memlock_bytes=-1), None),
        ("RUN-006", _limited(-1, 5), None),
        ("RUN-007", _limited(5, 32_767), "32767"),
        ("RUN-007", _limited(5, 32_768), None),
        ("RUN-007", _limited(5, -1), None),
        ("RUN-007", _limited(5, -1, open_files=1024), "1024"),
        ("RUN-007", _limited(5, 1024, open_files=65_536), None),
    ],
)
def test_limits_are_the_configurations_before_the_runtimes_own(
    code: str, snapshot: Snapshot, observed: str | None
) -> None:
    found = result(code, snapshot)
    assert found.verdict is Verdict.PASS
    assert [one.observed.startswith(observed or "-") for one in found.findings] == (
        [True] if observed else []
    )


@pytest.mark.parametrize("code", ["RUN-006", "RUN-007"])
def test_unread_limits_are_unknown(code: str) -> None:
    assert result(code, _limited(None, None)).verdict is Verdict.UNKNOWN
    assert result(code, _with(runtimes=())).missing == ("limits of the container runtime",)


def test_locked_memory_is_of_no_account_without_rdma() -> None:
    software = Hca(name="rxe0", kind=HcaKind.SOFTWARE)
    snapshot = replace(_limited(65536, -1), hcas=(software,))
    assert result("RUN-006", snapshot).skipped == "no RDMA device"
    assert result("RUN-006", replace(snapshot, hcas=None)).missing == ("HCAs",)
