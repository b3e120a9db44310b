"""Where a node stands in its cluster's network: from foreign labels to levels and our own tiers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.labels.label import LabelFamily
from agent.labels.levels_platform import PLATFORMS, REGION, ZONE, Platform
from agent.labels.levels_value import level_value
from agent.labels.rules import DEFAULT_PREFIX, LabelRules
from agent.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level that a node's labels name.

    Attributes:
        name: ``region``, ``zone``, or ``tier-<n>``, 0 being the nearest to the node.
        key, value: the label as it stands on the Node.
    """

    name: str
    key: str
    value: str


def node_levels(labels: Mapping[str, str], only: Platform | None = None) -> tuple[Level, ...]:
    """Return the levels that the Node's *labels* name, broadest first.

    Tiers are those of one platform: the first whose tier 0 is there, or *only* that one.
    A key that is there without a value, as some clouds leave it, names nothing. A broader
    tier that is missing is left out; the others keep their numbers.
    """
    candidates = PLATFORMS if only is None else (only,)
    found = next((one for one in candidates if labels.get(one.keys[0])), None)
    keys = tuple(enumerate(found.keys if found else ()))
    named = (("region", REGION), ("zone", ZONE), *((f"tier-{n}", key) for n, key in keys[::-1]))
    return tuple(
        Level(name=name, key=key, value=labels[key]) for name, key in named if labels.get(key)
    )


def tiers(levels: Iterable[Level]) -> dict[str, str]:
    """Return the tiers among *levels* as ``LabelRules.levels`` wants them: name → label value.

    Region and zone have well-known labels already and are not published again.
    """
    found = {level.name: level_value(level.value) for level in levels}
    return {
        name: value
        for name, value in found.items()
        if name.startswith("tier-") and value is not None
    }


def _published(snapshot: Snapshot, rules: LabelRules) -> dict[str, str | None]:
    if not snapshot.gpus:
        return {}
    return {f"{DEFAULT_PREFIX}{name}": value for name, value in rules.levels.items()}


ENTRIES: tuple[LabelFamily, ...] = (
    LabelFamily(
        key="gpu.topology/tier-<n>",
        meaning="What the node shares with others at that level of the network; 0 is the "
        "nearest switch. Only on request.",
        source="labels of the cloud or of Topograph, or a file",
        cardinality="one per switch of that level",
        values=_published,
    ),
)
