"""The page on the topology family."""

import re

from nodetopo.components.labels.catalogue import CATALOGUE
from nodetopo.components.labels.levels import PLATFORMS
from nodetopo.components.labels.rules import DEFAULT_PREFIX
from scripts.generators.labels import topology_page


def test_the_page_names_every_platform() -> None:
    rows = re.findall(r"^\| `([a-z0-9.-]+)` \|", topology_page(), re.MULTILINE)
    assert rows == [platform.name for platform in PLATFORMS]


def test_every_label_that_the_page_recommends_exists() -> None:
    uses = topology_page().partition("## Not published")[0].partition("| To | use |")[2]
    named = {name for name in re.findall(r"`([a-z-]+)`", uses) if name != "topology-ok-reason"}
    assert named - {entry.key.removeprefix(DEFAULT_PREFIX) for entry in CATALOGUE} == set()
    assert len(named) > 15
