"""The doctor's catalogue, its page, and the JSON that other programs rely on."""

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from nodetopo.tools.cluster.cluster import group
from nodetopo.tools.cluster.doctor.catalogue import RULES, examine, examined_to_plain
from nodetopo.tools.cluster.doctor.rule import ClusterArea, ClusterRule
from nodetopo.tools.node_rules import node_rules
from tests.docs.test_links import ROOT, anchors
from tests.tools.cluster.examined import cluster, nodes

DOCS = Path(__file__).parents[4] / "docs"
SCHEMA = json.loads((DOCS / "reference" / "schema" / "doctor.json").read_text(encoding="utf-8"))


def test_no_code_is_given_twice_nor_to_a_rule_about_nodes() -> None:
    codes = [rule.code for rule in (*RULES, *node_rules())]
    assert sorted(set(codes)) == sorted(codes)
    assert all(re.fullmatch(r"CLU-\d{3}", rule.code) for rule in RULES)


def test_every_area_has_a_rule() -> None:
    assert {rule.area for rule in RULES} == set(ClusterArea)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_every_url_leads_to_a_heading(rule: ClusterRule) -> None:
    page, _, anchor = rule.url.partition("#")
    assert anchor in anchors(ROOT / page)


def test_a_report_has_the_shape_that_the_schema_promises() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    found = cluster(nodes(), gangs=(group("9@a/b"),))
    plain = examined_to_plain(found, examine(found))
    Draft202012Validator(SCHEMA).validate(plain)
    assert plain["nodes"] == ["n0", "n1", "n2", "n3", "n4"]
    assert plain["summary"] == {
        "pass": 12,
        "warn": 0,
        "fail": 1,
        "unknown": 0,
        "waived": 0,
        "skipped": 0,
    }
