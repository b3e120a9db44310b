"""A rule on parameters of NVIDIA's kernel module that cost bandwidth."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from agent.checks.inputs import Inputs, because, missing_gpus, no_gpus
from agent.checks.pcie_iommu import is_translated
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot

SOURCE = "/proc/driver/nvidia/params"
_OVERRIDES = ("RegistryDwords", "RegistryDwordsPerDevice")
_OVERRIDE = re.compile(r"([A-Za-z0-9_]{1,128}) *= *([A-Za-z0-9_]{1,128})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """A parameter, without ``NVreg_``, that costs something with some values.

    Attributes:
        hurts: whether a value costs something; values are as procfs prints them.
        expected: the value that does not.
        applies: whether this node is one that it can hurt.
    """

    name: str
    hurts: Callable[[str], bool]
    expected: str
    applies: Callable[[Snapshot], bool] = lambda _: True


def _is_on(value: str) -> bool:
    return value not in ("0", "0x0", "")


def _is_off(value: str) -> bool:
    return value in ("0", "0x0")


def _joins_nodes(snapshot: Snapshot) -> bool:
    return any(gpu.fabric and gpu.fabric.cluster_uuid for gpu in snapshot.gpus)


HARMS: tuple[Harm, ...] = (
    Harm(name="NvLinkDisable", hurts=_is_on, expected="0"),
    Harm(
        name="RmNvlinkBandwidth",
        hurts=lambda value: value not in ("", "FULL"),
        expected="FULL",
    ),
    Harm(name="RmNvlinkBandwidthLinkCount", hurts=_is_on, expected="0"),
    Harm(name="EnableMSI", hurts=_is_off, expected="1"),
    Harm(name="DmaRemapPeerMmio", hurts=_is_off, expected="1", applies=is_translated),
    Harm(name="ImexChannelCount", hurts=_is_off, expected="2048", applies=_joins_nodes),
)
"""NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv-reg.h, where each is described: NVLink
switched off, or with less of its bandwidth to save power; interrupts by wire; addresses of peers
that an IOMMU does not know; no channel for memory shared across nodes."""


def _harmful(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"NVreg_{harm.name} in {SOURCE}",
            observed=value,
            expected=harm.expected,
        )
        for harm in HARMS
        if harm.applies(snapshot)
        for value in dict.fromkeys(_values(_parameters(snapshot), harm.name))
        if harm.hurts(value)
    )


def _parameters(snapshot: Snapshot) -> Mapping[str, str]:
    return (snapshot.nvidia.parameters if snapshot.nvidia else None) or {}


def _values(parameters: Mapping[str, str], name: str) -> Iterator[str]:
    """Yield the parameter's value, and those that its two lists of overrides give it."""
    if name in parameters:
        yield parameters[name]
    for source in _OVERRIDES:
        for key, value in _OVERRIDE.findall(parameters.get(source, "")):
            if key == name:
                yield value


def _missing(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.nvidia is not None and snapshot.nvidia.parameters is not None
    absent = () if is_known else (f"driver parameters{because(snapshot, 'nvidia-driver')}",)
    return missing_gpus(snapshot) + absent


RULES: tuple[Rule, ...] = (
    Rule(
        code="GDR-002",
        claim="no parameter of the NVIDIA driver takes bandwidth away",
        why="Such parameters are set to save power or to work around a fault, and forgotten; "
        "nothing else shows why NVLink is slow or gone.",
        area=Area.GPUDIRECT,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing,
        check=_harmful,
        skips=no_gpus,
        remedy="remove the option from /etc/modprobe.d and from the kernel's command line, then "
        "load the driver anew or reboot",
        reference="https://github.com/NVIDIA/open-gpu-kernel-modules/blob/main/"
        "kernel-open/nvidia/nv-reg.h",
    ),
)
