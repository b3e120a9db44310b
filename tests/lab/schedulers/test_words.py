"""The words that an export uses, looked up in the source of those who are to read them."""

import re

import pytest

from nodetopo.tools.cluster.export.formats import Exported
from tests.lab.cluster import Cluster
from tests.lab.schedulers.crds import module_directory
from tests.lab.schedulers.exported import export_of

pytestmark = pytest.mark.lab

_KEY = re.compile(r"[a-z0-9.-]+/[a-z0-9.-]+[a-z0-9]")


@pytest.mark.parametrize(
    ("scheduler", "source", "keys"),
    [
        (
            "kai",
            "pkg/podgrouper/podgrouper/plugins/defaultgrouper/default_grouper.go",
            {"kai.scheduler/topology", "kai.scheduler/topology-required-placement"},
        ),
        (
            "kueue",
            "apis/kueue/v1beta2/topology_types.go",
            {"kueue.x-k8s.io/podset-required-topology"},
        ),
        (
            "lws",
            "api/leaderworkerset/v1/leaderworkerset_types.go",
            {"leaderworkerset.sigs.k8s.io/exclusive-topology"},
        ),
    ],
)
def test_the_annotations_are_those_that_the_scheduler_reads(
    trays: Cluster, scheduler: str, source: str, keys: set[str]
) -> None:
    domains = {key.partition("/")[0] for key in keys}
    versions = {str(one["apiVersion"]) for one in export_of(trays, scheduler, "words").objects}
    used = _KEY.findall(_text(export_of(trays, scheduler, "words")))

    assert {one for one in used if one.partition("/")[0] in domains} - versions == keys
    assert {key for key in keys if f'"{key}"' in _source(scheduler, source)} == keys


@pytest.mark.parametrize(
    ("form", "source", "words"),
    [
        (
            "hypernodes",
            "config/crd/volcano/bases/batch.volcano.sh_jobs.yaml",
            ("networkTopology:", "mode:", "highestTierName:"),
        ),
        (
            "discovery",
            "pkg/controllers/hypernode/config/loader.go",
            ("volcano-controller.conf",),
        ),
        (
            "discovery",
            "pkg/controllers/hypernode/api/types.go",
            ("networkTopologyDiscovery", "source", "enabled", "config"),
        ),
        (
            "discovery",
            "pkg/controllers/hypernode/discovery/label/label.go",
            ("networkTopologyTypes", "nodeLabel"),
        ),
    ],
)
def test_the_settings_of_volcano_are_those_that_it_reads(
    trays: Cluster, form: str, source: str, words: tuple[str, ...]
) -> None:
    text, theirs = _text(export_of(trays, "volcano", "words", form)), _source("volcano", source)

    assert [word for word in words if word in text and word in theirs] == list(words)


def _text(found: Exported) -> str:
    return "\n".join([*map(str, found.objects), *(remark.text for remark in found.remarks)])


def _source(project: str, path: str) -> str:
    return module_directory(project).joinpath(path).read_text("utf-8")
