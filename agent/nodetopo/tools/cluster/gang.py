"""Groups of pods that must be placed together, and their levels."""

import re
from dataclasses import dataclass

from nodetopo.errors import InputError

_GROUP = re.compile(r"(?P<size>[1-9][0-9]{0,5})(x(?P<gpus>[1-9][0-9]{0,2}))?@(?P<key>\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A group that a scheduler places within one place of a level, or not at all."""

    name: str  # for people: Kueue Workload ml/train
    size: int  # pods that must run at once
    key: str  # the level, as a label key
    gpus: int | None = None  # whole GPUs requested by each pod
    has_whole_nodes: bool = False  # each pod has an exclusive node, regardless of its requests
    is_of_kai: bool = False  # placed by KAI, which has a special rule about MIG
    # The KAI Topology with `key` as a level or an alias; None for others.
    topology: str | None = None
    is_label: bool = True  # `key` is certainly a label key, not a name internal to the scheduler


def group(text: str) -> Gang:
    """Return the group that a person writes as ``SIZE@KEY`` (nodes) or ``SIZExGPUS@KEY`` (pods)."""
    match = _GROUP.fullmatch(text)
    if match is None:
        cure = "write 18@KEY for 18 nodes, or 64x1@KEY for 64 pods of one GPU each"
        raise InputError(f"not a group: {text!r}", cure)
    gpus = None if match["gpus"] is None else int(match["gpus"])
    return Gang(
        name=f"--group {text}",
        size=int(match["size"]),
        key=match["key"],
        gpus=gpus,
        has_whole_nodes=gpus is None,
    )
