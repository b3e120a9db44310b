"""The page on the topology family."""

import re

from nodetopo.components.labels.catalogue import CATALOGUE
from nodetopo.components.labels.rules import DEFAULT_PREFIX
from scripts.generators.labels import TOPOLOGY_PAGE


def test_every_label_that_the_page_recommends_exists() -> None:
    page = TOPOLOGY_PAGE.read_text("utf-8")
    uses = page.partition("## Not published")[0].partition("| To | use |")[2]
    named = {name for name in re.findall(r"`([a-z-]+)`", uses) if name != "topology-ok-reason"}
    assert named - {entry.key.removeprefix(DEFAULT_PREFIX) for entry in CATALOGUE} == set()
    assert len(named) > 15
