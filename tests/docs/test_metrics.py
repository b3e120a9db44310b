"""The reference page of the metrics, and what other pages say of them."""

import re
from pathlib import Path

from agent.publish.metrics.families import FAMILIES
from scripts.docs.metrics import page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_page_in_docs_is_the_generated_one() -> None:
    # To refresh: python -c "from scripts.docs.metrics import page; print(page(), end='')"
    assert (DOCS / "reference" / "metrics.md").read_text("utf-8") == page()


def test_the_page_counts_the_series_of_a_gpu_and_of_a_resource() -> None:
    gpu = [family for family in FAMILIES if "gpu" in family.labels]
    resource = [family for family in FAMILIES if "resource" in family.labels]
    both = sum("health" in family.labels for family in resource)  # healthy and unhealthy devices
    sound = len(gpu) - 1  # a sound GPU has no `gpu_health_info`
    assert f"{sound} for each GPU, {len(resource) + both} for each resource" in page()


def test_no_name_is_given_twice() -> None:
    names = [family.full_name for family in FAMILIES]
    assert len(set(names)) == len(names)


def test_every_metric_in_the_documentation_exists() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    named = {
        name
        for one in pages
        for name in re.findall(r"\bnodetopo_[a-z_]+\b", one.read_text("utf-8"))
    }
    assert named - {family.full_name for family in FAMILIES} == set()


def test_a_metric_says_what_it_means_in_one_sentence_without_a_stop() -> None:
    odd = [family.name for family in FAMILIES if family.text.endswith(".") or "|" in family.text]
    assert odd == []
