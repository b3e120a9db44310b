"""How devices reach containers on a node of each kind."""

import dataclasses
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.hand_over import NodeSetup, choose, file_state, read_setup
from nodetopo.deviceplugin.settings import Strategy
from nodetopo.model.cdi import CdiFault, CdiSpec
from nodetopo.model.host import ContainerToolkit, RuntimeConfig

KIND = "nvidia.com/gpu"
GPUS = ("GPU-0", "GPU-1")
SPEC = CdiSpec(path="/etc/cdi/nvidia.yaml", kind=KIND, devices=("all", *GPUS))
CONTAINERD = RuntimeConfig(
    name="containerd", path="/etc/containerd/config.toml", cdi=True, nvidia_runtimes=("nvidia",)
)
OFF, UNSTATED = replace(CONTAINERD, cdi=False), replace(CONTAINERD, cdi=None)
PLAIN = replace(CONTAINERD, nvidia_runtimes=())
TOOLKIT = ContainerToolkit(path="/etc/nvidia-container-runtime/config.toml")
MOUNTS = replace(TOOLKIT, volume_mounts=True, env_when_unprivileged=False)
CLOSED = replace(TOOLKIT, env_when_unprivileged=False)
MODE_CDI = replace(TOOLKIT, mode="cdi")
STALE = replace(SPEC, devices=("all", "GPU-0"))
GONE = replace(
    SPEC,
    faults=(CdiFault(reason="names /dev/nvidia1, which does not exist", devices=("all", "GPU-1")),),
)
RUN = "/var/run/cdi/nvidia.yaml"
INVALID = CdiSpec(path="/etc/cdi/nvidia.yaml", kind=KIND, devices=GPUS, error="no devices")
MANAGEMENT = replace(SPEC, kind="management.nvidia.com/gpu", devices=("all",))
OLD = replace(SPEC, driver_version="570.1")
OTHERS = replace(SPEC, kind="amd.com/gpu")

CDI, ENV, VOLUMES = Strategy.CDI_CRI, Strategy.ENVVAR, Strategy.VOLUME_MOUNTS


@pytest.mark.parametrize(
    ("specs", "runtime", "toolkit", "expected", "why"),
    [
        # A specification is in force, and the runtime heeds it.
        ((SPEC,), CONTAINERD, TOOLKIT, CDI, "has all devices"),
        ((SPEC,), CONTAINERD, None, CDI, "has all devices"),
        ((STALE, replace(STALE, devices=("GPU-1",))), CONTAINERD, TOOLKIT, CDI, "all devices"),
        # What another directory overrides does no harm.
        ((GONE, replace(SPEC, path=RUN)), CONTAINERD, TOOLKIT, CDI, "has all devices"),
        ((OLD, replace(SPEC, path="/run/cdi/a.json")), CONTAINERD, TOOLKIT, CDI, "all devices"),
        ((SPEC, replace(OLD, path=RUN)), CONTAINERD, TOOLKIT, ENV, f"{RUN} is of driver 570.1"),
        # A file that the runtime's directories do not hold.
        ((replace(SPEC, path="/opt/cdi/a.yaml"),), CONTAINERD, TOOLKIT, ENV, "no CDI spec"),
        (
            (replace(SPEC, path="/opt/cdi/a.yaml"),),
            replace(CONTAINERD, cdi_dirs=("/opt/cdi/",)),
            TOOLKIT,
            CDI,
            "has all devices",
        ),
        # It is not, or the runtime does not: the toolkit's way.
        ((), CONTAINERD, TOOLKIT, ENV, "no CDI specification of nvidia.com/gpu"),
        ((OTHERS,), CONTAINERD, MOUNTS, VOLUMES, "accepts volume mounts"),
        ((STALE,), CONTAINERD, TOOLKIT, ENV, "does not name GPU-1"),
        ((GONE,), CONTAINERD, TOOLKIT, ENV, "names /dev/nvidia1, which does not exist"),
        ((OLD,), CONTAINERD, TOOLKIT, ENV, "is of driver 570.1, and 580.2 is loaded"),
        ((INVALID,), CONTAINERD, TOOLKIT, ENV, "CDI ignores /etc/cdi/nvidia.yaml: no devices"),
        (
            (SPEC, replace(STALE, path="/etc/cdi/b.yaml")),
            CONTAINERD,
            TOOLKIT,
            ENV,
            "/etc/cdi/nvidia.yaml and /etc/cdi/b.yaml both define GPU-0, and CDI drops it",
        ),
        ((SPEC,), OFF, TOOLKIT, ENV, "does not take CDI"),
        ((SPEC,), OFF, MOUNTS, VOLUMES, "does not take CDI"),
        # Without the toolkit's file its defaults hold.
        ((), CONTAINERD, None, ENV, "takes a variable unless it is told otherwise"),
        # It is not known whether the runtime heeds it: the toolkit's way works in both cases.
        ((SPEC,), UNSTATED, TOOLKIT, ENV, "not known whether"),
        ((SPEC,), None, MOUNTS, VOLUMES, "not known whether"),
        ((SPEC,), None, None, CDI, "nothing says"),
        ((SPEC,), UNSTATED, CLOSED, CDI, "nothing says"),
        # Nothing of CDI can be seen.
        (None, None, TOOLKIT, ENV, "no directory of CDI specifications can be seen"),
        (None, None, None, CDI, "nothing is known"),
        # Only CDI is left where no runtime is NVIDIA's.
        ((SPEC,), replace(PLAIN, cdi=None), TOOLKIT, CDI, "nothing says"),
    ],
)
def test_the_way_that_works_is_chosen(
    specs: tuple[CdiSpec, ...] | None,
    runtime: RuntimeConfig | None,
    toolkit: ContainerToolkit | None,
    expected: Strategy,
    why: str,
) -> None:
    runtimes = None if runtime is None else (runtime,)
    setup = NodeSetup(specs=specs, runtimes=runtimes, toolkit=toolkit)
    chosen = choose(setup, kind=KIND, devices=GPUS, driver="580.2")
    assert (chosen.strategy, chosen.problem) == (expected, None)
    assert why in chosen.reason


@pytest.mark.parametrize(
    ("specs", "runtime", "toolkit", "problem"),
    [
        ((), CONTAINERD, CLOSED, "accepts neither a variable nor volume mounts"),
        ((), CONTAINERD, MODE_CDI, "has mode cdi, which needs a specification too"),
        ((MANAGEMENT,), CONTAINERD, MODE_CDI, "no CDI specification of nvidia.com/gpu"),
        (
            (SPEC,),
            OFF,
            replace(MODE_CDI, cdi_kind="management.nvidia.com/gpu"),
            "no CDI specification of management.nvidia.com/gpu",
        ),
        ((), PLAIN, None, "no container runtime is NVIDIA's"),
        ((SPEC,), OFF, CLOSED, "the container runtime does not take CDI"),
    ],
)
def test_a_node_on_which_no_way_works_is_named(
    specs: tuple[CdiSpec, ...],
    runtime: RuntimeConfig,
    toolkit: ContainerToolkit | None,
    problem: str,
) -> None:
    setup = NodeSetup(specs=specs, runtimes=(runtime,), toolkit=toolkit)
    chosen = choose(setup, kind=KIND, devices=GPUS)
    assert chosen.strategy == CDI
    assert problem in str(chosen.problem)


def test_a_specification_that_the_daemon_writes_is_in_force() -> None:
    setup = NodeSetup(specs=(), runtimes=(CONTAINERD,), toolkit=TOOLKIT)
    assert choose(setup, kind=KIND, devices=GPUS, writes_spec=True).strategy == CDI
    off = dataclasses.replace(setup, runtimes=(OFF,))
    assert choose(off, kind=KIND, devices=GPUS, writes_spec=True).strategy == ENV


def test_runtimes_that_disagree_are_not_known_to_take_cdi() -> None:
    crio = RuntimeConfig(name="crio", path="/etc/crio/crio.conf", cdi=True)
    assert NodeSetup(runtimes=(OFF, crio)).takes_cdi is None
    assert NodeSetup(runtimes=(CONTAINERD, crio)).takes_cdi is True


def test_a_fault_of_a_device_that_no_container_can_get_does_not_count() -> None:
    setup = NodeSetup(specs=(GONE,), runtimes=(CONTAINERD,), toolkit=TOOLKIT)
    assert choose(setup, kind=KIND, devices=("GPU-0",)).strategy == CDI
    assert choose(setup, kind=KIND, devices=GPUS).strategy == ENV


def test_mode_cdi_takes_the_devices_of_its_own_kind_and_directories() -> None:
    toolkit = replace(MODE_CDI, cdi_kind="my.com/gpu", cdi_dirs=("/opt/cdi",))
    specs = (replace(SPEC, path="/opt/cdi/a.yaml", kind="my.com/gpu"),)
    setup = NodeSetup(specs=specs, runtimes=(OFF,), toolkit=toolkit)
    assert choose(setup, kind=KIND, devices=GPUS).strategy == ENV


def test_the_setup_is_read_below_the_hosts_root_and_its_state_follows(tmp_path: Path) -> None:
    assert read_setup(tmp_path) == NodeSetup()
    states = [file_state(tmp_path, NodeSetup())]

    cdi = tmp_path / "var/run/cdi"
    cdi.mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    edits = {"deviceNodes": [{"path": "/dev/nvidia0"}]}
    devices = [{"name": "GPU-0", "containerEdits": edits}]
    document = {"cdiVersion": "0.6.0", "kind": KIND, "devices": devices}
    (cdi / "nvidia.json").write_text(json.dumps(document))
    states.append(file_state(tmp_path, NodeSetup()))
    setup = read_setup(tmp_path)
    (spec,) = setup.specs or ()
    assert (spec.kind, spec.devices) == (KIND, ("GPU-0",))
    assert [fault.reason for fault in spec.faults] == ["names /dev/nvidia0, which does not exist"]

    states.append(file_state(tmp_path, setup))
    (tmp_path / "dev/nvidia0").touch()
    states.append(file_state(tmp_path, setup))
    (spec,) = read_setup(tmp_path).specs or ()
    assert spec.faults == ()

    toolkit = tmp_path / "etc/nvidia-container-runtime/config.toml"
    toolkit.parent.mkdir(parents=True)
    toolkit.write_text("accept-nvidia-visible-devices-as-volume-mounts = true\n")
    states.append(file_state(tmp_path, setup))
    found = read_setup(tmp_path).toolkit
    assert found is not None
    assert found.volume_mounts

    (cdi / "nvidia.json").unlink()
    states.append(file_state(tmp_path, setup))
    assert len(set(states)) == len(states)
    assert file_state(tmp_path, setup) == states[-1]
