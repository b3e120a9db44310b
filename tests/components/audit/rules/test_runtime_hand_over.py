"""GPUs that a reload of systemd takes away: where a hook adds them, and systemd has the cgroups."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.model.cdi import CdiSpec
from nodetopo.model.host import ContainerToolkit, RuntimeConfig
from nodetopo.model.kubelet import CONFIGZ
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import HOST, NODE, SETTINGS, healthy, result

UUIDS = tuple(str(gpu.uuid) for gpu in healthy().gpus)
LEGACY = ContainerToolkit(path="/etc/x.toml", mode="legacy")
OLD = ContainerToolkit(path="/etc/x.toml", version="1.17.8")
CONTAINERD = RuntimeConfig(
    name="containerd",
    path="/etc/containerd/config.toml",
    cdi=True,
    nvidia_runtimes=("nvidia",),
    systemd_cgroup=True,
)
NVIDIAS = CdiSpec(path="/var/run/cdi/nvidia.yaml", kind="nvidia.com/gpu", devices=(*UUIDS, "all"))
PLUGINS = replace(NVIDIAS, path="/var/run/cdi/p.json", kind="k8s.device-plugin.nvidia.com/gpu")
PASSED = (Verdict.PASS, None)


def _with(config: RuntimeConfig = CONTAINERD, **parts: object) -> Snapshot:
    made = {"char_devices": False, "toolkit": LEGACY, "runtime_configs": (config,), **parts}
    return replace(healthy(), host=replace(HOST, **made))  # by name


def test_missing_links_are_found_with_how_gpus_get_there() -> None:
    found = result("RUN-002", _with())
    (one,) = found.findings
    assert one.subject == "/dev/char"
    assert one.observed == (
        "a GPU has no link there, the hook of NVIDIA's runtime (mode legacy) adds GPUs to "
        "containers, and the cgroup driver in /etc/containerd/config.toml is systemd"
    )
    assert found.verdict is Verdict.WARN
    assert result("RUN-002", _with(char_devices=True)).verdict is Verdict.PASS


@pytest.mark.parametrize("specs", [(), (NVIDIAS,), None])
def test_a_specification_that_mode_legacy_does_not_use_changes_nothing(
    specs: tuple[CdiSpec, ...] | None,
) -> None:
    assert result("RUN-002", _with(cdi_specs=specs)).verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("mode", "version", "verdict"),
    [
        (None, "1.17.8", Verdict.WARN),
        ("auto", "1.17.8", Verdict.WARN),
        ("legacy", "1.18.0", Verdict.WARN),
        ("auto", None, Verdict.UNKNOWN),
        ("auto", "1.18.0", Verdict.PASS),
        (None, "1.20.0", Verdict.PASS),
        ("jit-cdi", None, Verdict.PASS),
        ("cdi", "1.16.0", Verdict.PASS),
    ],
)
def test_the_toolkits_mode_decides_whether_runc_knows_of_the_gpus(
    mode: str | None, version: str | None, verdict: Verdict
) -> None:
    toolkit = ContainerToolkit(path="/etc/x.toml", mode=mode, version=version)
    assert result("RUN-002", _with(toolkit=toolkit)).verdict is verdict


def test_without_nvidias_runtime_nothing_is_added_behind_runcs_back() -> None:
    found = result("RUN-002", _with(replace(CONTAINERD, nvidia_runtimes=())))
    assert found.skipped == "no runtime here runs NVIDIA's program"


@pytest.mark.parametrize(
    ("cdi", "peers", "spec", "toolkit", "verdict"),
    [
        # A plugin's own specification, and a runtime that heeds it.
        (True, (), PLUGINS, LEGACY, Verdict.PASS),
        (True, (), replace(PLUGINS, kind="k8s.gpu.nvidia.com/claim"), OLD, Verdict.PASS),
        (False, (), PLUGINS, LEGACY, Verdict.WARN),
        # The toolkit's, by which a plugin may hand over or not.
        (True, (), NVIDIAS, OLD, Verdict.UNKNOWN),
        (True, ("nvidia-device-plugin",), NVIDIAS, OLD, Verdict.WARN),
        (False, (), NVIDIAS, OLD, Verdict.WARN),
        (True, (), replace(NVIDIAS, devices=("all",)), OLD, Verdict.WARN),
    ],
)
def test_cdi_counts_where_it_hands_gpus_over(
    cdi: bool,
    peers: tuple[str, ...],
    spec: CdiSpec,
    toolkit: ContainerToolkit,
    verdict: Verdict,
) -> None:
    config = replace(CONTAINERD, cdi=cdi)
    snapshot = _with(config, cdi_specs=(spec,), toolkit=toolkit, peer_programs=peers)
    assert result("RUN-002", snapshot).verdict is verdict


@pytest.mark.parametrize(
    ("runtime", "source", "driver", "kubelet", "verdict"),
    [
        # The runtime's own setting decides, whatever the kubelet's file says.
        (True, "/x.yaml", "cgroupfs", "v1.36.3", Verdict.WARN),
        (False, "/x.yaml", "systemd", "v1.36.3", Verdict.PASS),
        # The kubelet reports the driver that it uses.
        (None, CONFIGZ, "systemd", "v1.36.3", Verdict.WARN),
        (None, CONFIGZ, "cgroupfs", "v1.36.3", Verdict.PASS),
        # A file's, and the default of one that states none, count before the kubelet asks the CRI.
        (None, "/x.yaml", "systemd", "v1.30.9", Verdict.WARN),
        (None, "/x.yaml", "cgroupfs", "v1.30.9", Verdict.PASS),
        (None, "/x.yaml", "cgroupfs", "v1.31.0", Verdict.UNKNOWN),
        (None, "/x.yaml", "systemd", None, Verdict.WARN),
        (None, "/x.yaml", "systemd", "v1.35.4", Verdict.WARN),
        (None, "/x.yaml", "systemd", "v1.36.0", Verdict.UNKNOWN),
        (None, "/x.yaml", None, "v1.30.9", Verdict.UNKNOWN),
    ],
)
def test_the_cgroup_driver_is_the_runtimes(
    runtime: bool | None, source: str, driver: str | None, kubelet: str | None, verdict: Verdict
) -> None:
    snapshot = replace(
        _with(replace(CONTAINERD, systemd_cgroup=runtime)),
        kubelet=replace(SETTINGS, source=source, cgroup_driver=driver),
        node_status=replace(NODE, kubelet_version=kubelet),
    )
    assert result("RUN-002", snapshot).verdict is verdict


def test_what_is_not_known_is_named() -> None:
    found = result("RUN-002", replace(healthy(), host=None, kubelet=None))
    assert (found.verdict, found.findings) == (Verdict.UNKNOWN, ())
    assert found.missing == (
        "configuration of the container runtime",
        "config.toml of NVIDIA's container toolkit",
        "cgroup driver of the container runtime",
        "links in /dev/char",
    )
