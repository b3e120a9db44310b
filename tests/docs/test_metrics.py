"""The reference page of the metrics, and what other pages say of them."""

import re
from pathlib import Path

from nodetopo.kernel.http.families import families
from scripts.generators.metrics import minimal_pattern, page

FAMILIES = [family for _, family in families()]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def test_the_page_counts_the_series_of_a_gpu_and_of_a_resource() -> None:
    gpu = [family for family in FAMILIES if "gpu" in family.labels]
    resource = [family for family in FAMILIES if "resource" in family.labels]
    both = sum("health" in family.labels for family in resource)  # healthy and unhealthy devices
    assert f"+ {len(gpu)} * GPUs + {len(resource) + both} * resources +" in page()


def test_the_minimal_set_is_as_large_as_the_page_says() -> None:
    found = re.search(r"can keep (\d+) series of a node with 8 GPUs instead of (\d+)", page())
    assert found is not None
    pattern = re.compile(minimal_pattern())
    minimal = [family for family in FAMILIES if pattern.fullmatch(family.full_name)]
    assert minimal == [family for family in FAMILIES if family.is_minimal]
    node = sum(not {"gpu", "resource", "hca", "xid"} & set(family.labels) for family in minimal)
    gpu = sum("gpu" in family.labels for family in minimal)
    hca = sum("hca" in family.labels for family in minimal)
    assert (node + 8 * gpu + 8 * hca + 5, 287) == (int(found[1]), int(found[2]))


def test_no_name_is_given_twice() -> None:
    names = [family.full_name for family in FAMILIES]
    assert len(set(names)) == len(names)


def test_every_metric_in_the_documentation_exists() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    named = {
        name
        for one in pages
        for name in re.findall(r"(?<!:)\bnodetopo_[a-z_]+\b", one.read_text("utf-8"))
    }
    assert named - {family.full_name for family in FAMILIES} == set()


def test_a_metric_says_what_it_means_in_one_sentence_without_a_stop() -> None:
    odd = [family.name for family in FAMILIES if family.text.endswith(".") or "|" in family.text]
    assert odd == []
