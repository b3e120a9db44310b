"""What a rule has to know, told by the rule itself: what it misses of a node that tells nothing."""

from collections.abc import Mapping
from types import MappingProxyType

from agent.checks.rule import Rule
from agent.model.gpu import Gpu
from agent.model.hca import Hca, HcaPort
from agent.model.snapshot import Snapshot

_GPUS = (Gpu(index=0), Gpu(index=1))
_HCA = Hca(name="HCA", ports=(HcaPort(number=1),))

SILENT: tuple[Snapshot, ...] = (
    Snapshot(gpus=_GPUS),
    Snapshot(gpus=_GPUS, hcas=(_HCA,)),
)
"""Nodes of which nothing is known but that they have GPUs, and in the second one that there is an
HCA: what is needed of HCAs is asked only where there are some."""

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "GPU0, GPU1, HCA": "every GPU and HCA",
        "GPU0, GPU1": "every GPU",
        " of HCA": " of every HCA",
        "pods were not read": "pods",
    },
)


def needed(rule: Rule) -> tuple[str, ...]:
    """Return the inputs without which *rule* is unknown, as a person reads them, each once.

    Some are asked for only once others are known; those of a device that a job asks for are
    named by the report.
    """
    found = (name for snapshot in SILENT for name in _of(rule, snapshot))
    return tuple(dict.fromkeys(map(_general, found)))


def _of(rule: Rule, snapshot: Snapshot) -> tuple[str, ...]:
    return rule.needs(snapshot) if rule.skips(snapshot) is None else ()


def _general(name: str) -> str:
    for one, every in _WORDS.items():
        name = name.replace(one, every)
    return name
