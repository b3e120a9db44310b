"""How devices reach containers on a node of each kind."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.deviceplugin.hand_over import NodeSetup, choose, file_state, read_setup
from agent.deviceplugin.settings import Strategy
from agent.model.host import CdiSpec, ContainerToolkit, RuntimeConfig

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
GONE = replace(SPEC, missing=("/dev/nvidia1",))
OLD = replace(SPEC, driver_version="570.1")
OTHERS = replace(SPEC, kind="amd.com/gpu")

CDI, ENV, VOLUMES = Strategy.CDI_CRI, Strategy.ENVVAR, Strategy.VOLUME_MOUNTS


@pytest.mark.parametrize(
    ("specs", "runtime", "toolkit", "expected", "why"),
    [
        # A specification is in force, and the runtime heeds it.
        ((SPEC,), CONTAINERD, TOOLKIT, CDI, "has all devices"),
        ((SPEC,), CONTAINERD, None, CDI, "has all devices"),
        ((SPEC, GONE), CONTAINERD, TOOLKIT, CDI, "has all devices"),
        ((STALE, replace(STALE, devices=("GPU-1",))), CONTAINERD, TOOLKIT, CDI, "all devices"),
        # It is not, or the runtime does not: the toolkit's way.
        ((), CONTAINERD, TOOLKIT, ENV, "no CDI specification of nvidia.com/gpu"),
        ((OTHERS,), CONTAINERD, MOUNTS, VOLUMES, "accepts volume mounts"),
        ((STALE,), CONTAINERD, TOOLKIT, ENV, "does not name GPU-1"),
        ((GONE,), CONTAINERD, TOOLKIT, ENV, "names /dev/nvidia1, which does not exist"),
        ((OLD,), CONTAINERD, TOOLKIT, ENV, "is of driver 570.1, and 580.2 is loaded"),
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
    off = replace(setup, runtimes=(OFF,))
    assert choose(off, kind=KIND, devices=GPUS, writes_spec=True).strategy == ENV


def test_runtimes_that_disagree_are_not_known_to_take_cdi() -> None:
    crio = RuntimeConfig(name="crio", path="/etc/crio/crio.conf", cdi=True)
    assert NodeSetup(runtimes=(OFF, crio)).takes_cdi is None
    assert NodeSetup(runtimes=(CONTAINERD, crio)).takes_cdi is True


def test_the_setup_is_read_below_the_hosts_root_and_its_state_follows(tmp_path: Path) -> None:
    assert read_setup(tmp_path) == NodeSetup()
    states = [file_state(tmp_path)]

    cdi = tmp_path / "var/run/cdi"
    cdi.mkdir(parents=True)
    document = {"cdiVersion": "0.6.0", "kind": KIND, "devices": [{"name": "GPU-0"}]}
    (cdi / "nvidia.json").write_text(json.dumps(document))
    states.append(file_state(tmp_path))
    (spec,) = read_setup(tmp_path).specs or ()
    assert (spec.kind, spec.devices) == (KIND, ("GPU-0",))

    toolkit = tmp_path / "etc/nvidia-container-runtime/config.toml"
    toolkit.parent.mkdir(parents=True)
    toolkit.write_text("accept-nvidia-visible-devices-as-volume-mounts = true\n")
    states.append(file_state(tmp_path))
    found = read_setup(tmp_path).toolkit
    assert found is not None
    assert found.volume_mounts

    (cdi / "nvidia.json").unlink()
    states.append(file_state(tmp_path))
    assert len(set(states)) == len(states)
    assert file_state(tmp_path) == states[-1]
