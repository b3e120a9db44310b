"""The GPUs that were offered, so that a new process goes on listing one that is lost.

A lost GPU has no UUID to ask for, and NVML may not even count it. Left out of the list it would
take capacity along, where the kubelet's own test of device plugins has the capacity stay
(kubernetes 1.36 test/e2e_node/device_plugin_failures_test.go).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from agent.deviceplugin.host_files import HostFile
from agent.errors import DecodeError
from agent.model.codec import from_plain, load_json, to_plain
from agent.model.gpu import Gpu

SCHEMA = "nodetopo-gpus/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Document:
    """What the file holds: GPUs as they were last listed in the boot *boot_id*."""

    schema: str
    boot_id: str
    gpus: tuple[Gpu, ...]


class KnownGpus:
    """One file, which holds for one boot: after another, hardware may be gone for good."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self._file = HostFile(path)
        self._boot_id = boot_id
        self._problem: str | None = None

    def load(self) -> tuple[Gpu, ...]:
        """Return the GPUs that this boot is known to have had; none without such a file."""
        text = self._file.text()
        if text is None:
            return ()
        try:
            found = from_plain(_Document, load_json(text), [])
        except DecodeError as error:
            self._report(str(error))
            return ()
        is_ours = found.schema == SCHEMA and found.boot_id == self._boot_id
        return found.gpus if is_ours else ()

    def save(self, gpus: Sequence[Gpu]) -> None:
        """Remember *gpus*; what is wrong with the file is logged once and survived."""
        kept = tuple(map(_identity, gpus))
        document = _Document(schema=SCHEMA, boot_id=self._boot_id, gpus=kept)
        self._report(self._file.write(json.dumps(to_plain(document), indent=1) + "\n"))

    def _report(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            structlog.get_logger().warning("GPUs not remembered", problem=problem)
        self._problem = problem


def _identity(gpu: Gpu) -> Gpu:
    """Return what of *gpu* a device of it is made from; the rest changes, and is read again."""
    return Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        minor=gpu.minor,
        pci=gpu.pci,
        product=gpu.product,
        numa_node=gpu.numa_node,
        mig=gpu.mig,
    )
