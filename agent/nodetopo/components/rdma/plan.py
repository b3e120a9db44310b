"""The plan for HCAs, from the settings and their file."""

from pathlib import Path
from typing import Self

from msgspec import Struct

from nodetopo.components.rdma.answers import RdmaHandOver, RdmaSettings
from nodetopo.components.rdma.settings import HcaSettings, load_pools
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.errors import InputError
from nodetopo.nccl.job import JobVariable
from nodetopo.rdma.pools import RdmaConfig


class RdmaPlan(Struct, frozen=True, kw_only=True):
    """Which HCAs are offered, and how; other settings make another plan."""

    config: RdmaConfig | None  # None where no pool is offered
    pair: str | None  # the resource of GPUs together with HCAs; None for none
    answers: RdmaSettings
    variables: tuple[JobVariable, ...]  # that containers get
    host_root: Path  # the host's files as seen by this process
    cdi_dir: Path | None  # on the host; None for a simulated machine

    @classmethod
    def of(cls, settings: HcaSettings, *, is_simulated: bool) -> Self:
        """Return the plan; for a simulated machine no host file is used."""
        config, pair = load_pools(settings), settings.gpu_hca_resource
        pools = () if config is None else config.pools
        if pair is not None and pair in {
            settings.resource_name,
            *(pool.resource for pool in pools),
        }:
            raise InputError(
                f"gpu-hca-resource {pair} is the name of another resource",
                "give GPUs with an HCA a name of their own",
            )
        return cls(
            config=config,
            pair=pair,
            answers=RdmaSettings(
                hand_over=RdmaHandOver(settings.rdma_hand_over),
                kind=settings.rdma_cdi_kind,
                numa=NumaReport(settings.numa_mode),
                sysfs_root=None if is_simulated else settings.sysfs_root,
            ),
            variables=settings.job_variables,
            host_root=settings.host_root,
            cdi_dir=None if is_simulated else settings.cdi_spec_dir,
        )
