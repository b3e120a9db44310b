"""NVIDIA's container toolkit, and the runtime of pods."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.model.cdi import CdiSpec
from nodetopo.model.host import ContainerToolkit, RuntimeConfig
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import HOST, NODE, POD, healthy, result

TOOLKIT = ContainerToolkit(path="/etc/t.toml", version="1.19.1")
DEFAULT = RuntimeConfig(
    name="containerd",
    path="/etc/c.toml",
    cdi=False,
    default_runtime="nvidia",
    nvidia_runtimes=("nvidia",),
)
CHOSEN = replace(DEFAULT, default_runtime="runc", nvidia_runtimes=("nvidia", "nvidia-cdi"))
OPEN = (
    "the default runtime of /etc/c.toml is NVIDIA's, so that any image with "
    "NVIDIA_VISIBLE_DEVICES=all has all GPUs"
)
ENV = "accept-nvidia-visible-devices-envvar-when-unprivileged"


def _with(toolkit: ContainerToolkit | None, *configs: RuntimeConfig) -> Snapshot:
    return replace(healthy(), host=replace(HOST, toolkit=toolkit, runtime_configs=configs or None))


@pytest.mark.parametrize(
    ("stated", "config", "observed"),
    [
        (
            None,
            DEFAULT,
            f"not stated, which is true; {OPEN}",
        ),
        (
            True,
            CHOSEN,
            "true; any pod may name a RuntimeClass of nvidia, nvidia-cdi and take all GPUs",
        ),
    ],
)
def test_gpus_for_everyone_are_found_with_the_way_to_them(
    stated: bool | None, config: RuntimeConfig, observed: str
) -> None:
    found = result("RUN-008", _with(replace(TOOLKIT, env_when_unprivileged=stated), config))
    assert found.findings == (
        Finding(subject=f"{ENV} in /etc/t.toml", observed=observed, expected="false"),
    )


@pytest.mark.parametrize("code", ["RUN-008", "RUN-009", "RUN-010"])
def test_an_unread_toolkit_is_unknown(code: str) -> None:
    found = result(code, _with(None, DEFAULT))
    assert (found.verdict, found.missing[0]) == (
        Verdict.UNKNOWN,
        "config.toml of NVIDIA's container toolkit",
    )


@pytest.mark.parametrize("code", ["RUN-004", "RUN-008", "RUN-009", "RUN-010", "RUN-011"])
def test_without_nvidias_runtime_the_toolkit_does_not_matter(code: str) -> None:
    plain = replace(DEFAULT, nvidia_runtimes=())
    skipped = result(code, _with(None, plain)).skipped
    assert skipped == "no runtime here runs NVIDIA's program"


@pytest.mark.parametrize(
    ("env", "volumes", "cdi", "verdict"),
    [
        (False, None, False, Verdict.FAIL),
        (False, False, False, Verdict.FAIL),
        (False, False, True, Verdict.PASS),
        (False, True, False, Verdict.PASS),
        (None, False, False, Verdict.PASS),
        (False, False, None, Verdict.UNKNOWN),
    ],
)
def test_one_way_to_the_gpus_must_be_open(
    env: bool | None, volumes: bool | None, cdi: bool | None, verdict: Verdict
) -> None:
    toolkit = replace(TOOLKIT, env_when_unprivileged=env, volume_mounts=volumes)
    assert result("RUN-009", _with(toolkit, replace(DEFAULT, cdi=cdi))).verdict is verdict


@pytest.mark.parametrize(
    ("mode", "specs", "verdict"),
    [
        ("auto", (), Verdict.FAIL),
        ("auto", ("nvidia.com/gpu",), Verdict.FAIL),
        ("auto", ("k8s.device-plugin.nvidia.com/gpu",), Verdict.PASS),
        (None, ("k8s.device-plugin.nvidia.com/gpu",), Verdict.PASS),
        ("legacy", ("k8s.device-plugin.nvidia.com/gpu",), Verdict.FAIL),
        ("auto", None, Verdict.UNKNOWN),
        ("legacy", None, Verdict.FAIL),
    ],
)
def test_a_plugin_may_name_gpus_to_nvidias_runtime_in_annotations(
    mode: str | None, specs: tuple[str, ...] | None, verdict: Verdict
) -> None:
    toolkit = replace(TOOLKIT, env_when_unprivileged=False, mode=mode)
    kinds = None if specs is None else tuple(CdiSpec(path="/a.yaml", kind=one) for one in specs)
    closed = _with(toolkit, DEFAULT)
    assert closed.host is not None
    snapshot = replace(closed, host=replace(closed.host, cdi_specs=kinds))
    assert result("RUN-009", snapshot).verdict is verdict


def test_specifications_do_not_matter_where_the_runtime_takes_devices_by_cdi() -> None:
    shut = replace(TOOLKIT, env_when_unprivileged=False)
    open_to_cdi = _with(shut, replace(DEFAULT, cdi=True))
    assert open_to_cdi.host is not None
    snapshot = replace(open_to_cdi, host=replace(open_to_cdi.host, cdi_specs=None))
    assert result("RUN-009", snapshot).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("version", "holes"),
    [
        ("1.19.1", 0),
        ("1.20.0", 0),
        ("1.19.0", 1),
        ("1.17.8", 1),
        ("1.17.7", 3),
        ("1.17.3", 4),
        ("1.17.2", 7),
        ("1.16.2", 8),
        ("1.16.1", 9),
    ],
)
def test_holes_are_those_of_the_version(version: str, holes: int) -> None:
    found = result("RUN-010", _with(replace(TOOLKIT, version=version), DEFAULT))
    assert sum(one.observed.count("CVE-") for one in found.findings) == holes


@pytest.mark.parametrize("version", [None, "1.17", "latest"])
def test_an_unknown_version_is_unknown(version: str | None) -> None:
    found = result("RUN-010", _with(replace(TOOLKIT, version=version), DEFAULT))
    assert found.missing == ("version of NVIDIA's container toolkit",)


def _pods(*configs: RuntimeConfig, runtime_class: str | None = None) -> Snapshot:
    pod = replace(POD, runtime_class=runtime_class)
    return replace(_with(TOOLKIT, *configs), pods=(pod,))


def test_a_pod_with_gpus_under_a_plain_runtime_is_found() -> None:
    assert result("RUN-011", _pods(CHOSEN)).findings == (
        Finding(
            subject="pod ml/job-0",
            observed="no runtimeClassName, and the default runtime of /etc/c.toml is runc",
            expected="a RuntimeClass of nvidia | nvidia-cdi",
        ),
    )


@pytest.mark.parametrize(
    "snapshot",
    [
        _pods(CHOSEN, runtime_class="nvidia"),
        _pods(DEFAULT),
        _pods(CHOSEN, DEFAULT),
        _pods(replace(CHOSEN, cdi=True)),
    ],
)
def test_a_pod_that_gets_its_gpus_passes(snapshot: Snapshot) -> None:
    assert result("RUN-011", snapshot).verdict is Verdict.PASS


def test_a_pod_is_not_judged_while_cdi_is_not_known() -> None:
    unsure = replace(CHOSEN, cdi=None)
    snapshot = replace(_pods(unsure), node_status=replace(NODE, container_runtime=None))
    found = result("RUN-011", snapshot)
    assert (found.verdict, found.missing) == (
        Verdict.UNKNOWN,
        ("whether CDI is on by /etc/c.toml (version of containerd)",),
    )
