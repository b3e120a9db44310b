"""The settings of the HCAs that are offered, alongside GPUs or together with them."""

# ruff: noqa: RUF009 - a setting is a call that returns a dataclass field

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nodetopo.components.gpus.settings import GpuSettings
from nodetopo.kernel.settings import policies, values
from nodetopo.kernel.settings.groups import RDMA
from nodetopo.nccl.job import JobVariable
from nodetopo.rdma.pools import RdmaConfig, SharingMode

RDMA_USUAL_PLACE = Path("/k8s-rdma-shared-dev-plugin/config.json")
"""Default file of Mellanox' shared plugin, unless a flag names another (k8s-rdma-shared-dev-plugin
410b0f3, cmd/k8s-rdma-shared-dp/main.go).
"""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class HcaSettings(GpuSettings):
    """The settings of the GPUs and of the HCAs."""

    rdma_config: Path | None = RDMA(
        None,
        "pools of HCAs in the format of Mellanox' shared plugin; default that plugin's file if it "
        "exists; `none` to disable",
        values.path_or_none,
        "FILE",
        is_live=True,
    )
    rdma_mode: str = RDMA(
        "shared",  # as that plugin
        "which HCAs of a pool a container gets, unless the file sets it",
        *(mode.value for mode in SharingMode),
        is_live=True,
    )
    rdma_issm: bool = RDMA(
        True,  # as that plugin
        "also give containers the device nodes for subnet managers (issm)",
        is_live=True,
    )
    rdma_hand_over: str = RDMA(
        "device-specs",  # which every runtime understands
        "how HCAs reach a container",
        "device-specs",
        "cdi-cri",
        is_live=True,
    )
    rdma_cdi_kind: str = RDMA(
        "device-plugin.nodetopo.io/hca",
        "vendor/class of the HCAs in the CDI specification that cdi-cri needs",
        values.resource,
        "NAME",
        is_live=True,
    )
    job_variables: tuple[JobVariable, ...] = RDMA(
        (),  # a job can set its own, or choose among HCAs in ways that a list would hinder
        "comma-separated variables for containers with HCAs, unless the pod sets them: "
        f"{', '.join(JobVariable)}; or all, or none",
        policies.job_variables,
        "LIST",
        words=tuple(word.value for word in JobVariable),
        is_live=True,
    )
    gpu_hca_resource: str | None = RDMA(
        None,
        "advertise GPU+HCA pairs as this resource instead of single GPUs; `none` to disable",
        values.resource_or_none,
        "NAME",
        is_live=True,
    )


def derived(_environment: Mapping[str, str]) -> Mapping[str, tuple[object, str]]:
    """Return the settings that follow from the place where the daemon runs, with their origin."""
    try:
        is_there = RDMA_USUAL_PLACE.is_file()
    except OSError:  # a closed directory might have one, and reading it says why that fails
        is_there = True
    if not is_there:
        return {}
    return {"rdma_config": (RDMA_USUAL_PLACE, "default, as that file is there")}


def files(settings: HcaSettings) -> tuple[Path, ...]:
    """Return the files that are part of the settings; they can be missing."""
    return (settings.rdma_config or RDMA_USUAL_PLACE,)


def load_pools(settings: HcaSettings) -> RdmaConfig | None:
    """Return the pools of HCAs in the file that *settings* name; ``None`` for no file."""
    if settings.rdma_config is None:
        return None
    from nodetopo.components.rdma.pools_file import load  # noqa: PLC0415 - PyYAML for a file only

    mode = SharingMode(settings.rdma_mode)
    return load(settings.rdma_config, mode=mode, with_issm=settings.rdma_issm)
