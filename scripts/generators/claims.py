"""The claims of Dynamic Resource Allocation that machines are exported as, for review."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from nodetopo.machines import bundled
from nodetopo.tools.cluster.export.dra import ClaimOptions, export_claims
from nodetopo.tools.cluster.export.shapes import shape_of

_GOLDENS = Path(__file__).parents[2] / "tests" / "tools" / "cluster" / "export" / "goldens"

CASES = {
    "dgx-1v": ClaimOptions(sizes=(1, 2, 4)),
    "dgx-h100": ClaimOptions(name="train", namespace="batch"),
    "rtxpro6000-pcie-8": ClaimOptions(form="plain", device_class="rtx-gpu"),
    "hgx-h200": ClaimOptions(nic_driver="dra.net", sizes=(2, 8)),
    "dgx-a100": ClaimOptions(nic_driver="dra.net", sizes=(2,)),
    "gb200-nvl72": ClaimOptions(driver="nodetopo.io"),
    "hgx-b200": ClaimOptions(nic_driver="dra.net", cpu_driver="dra.cpu", cpus=12, sizes=(1, 8)),
}
"""A machine each, with the options of its export."""


def made() -> Mapping[Path, str]:
    """Return the objects of each case, with the remarks as comments."""
    return {
        _GOLDENS / f"dra-{machine}.yaml": _text(machine, options)
        for machine, options in CASES.items()
    }


def owned() -> Iterable[Path]:
    """Return the stored objects."""
    return _GOLDENS.iterdir()


def _text(machine: str, options: ClaimOptions) -> str:
    exported = export_claims([shape_of(bundled.machine(machine), options.drivers)], options)
    text: str = yaml.safe_dump_all(exported.objects, sort_keys=False, width=160)
    return text + "".join(f"# {remark.kind}: {remark.text}\n" for remark in exported.remarks)
