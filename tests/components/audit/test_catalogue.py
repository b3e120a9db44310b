"""The catalogue: unique codes, look-up, selection, and the page that has them."""

import re

import pytest

from nodetopo.checks.rule import Area, Rule
from nodetopo.components.audit.catalogue import AUDIT, HEALTH, RULES, rule, select
from nodetopo.errors import InputError
from tests.docs.test_links import ROOT, anchors


def test_no_two_rules_share_a_code() -> None:
    codes = [rule.code for rule in RULES]
    assert sorted(set(codes)) == sorted(codes)


@pytest.mark.parametrize("entry", RULES, ids=lambda entry: entry.code)
def test_a_code_is_three_letters_and_three_digits(entry: Rule) -> None:
    assert re.fullmatch(r"[A-Z]{3}-[0-9]{3}", entry.code)


def test_every_rule_is_run_by_exactly_one_command() -> None:
    assert sorted(r.code for r in HEALTH + AUDIT) == sorted(r.code for r in RULES)


def test_every_area_has_a_rule() -> None:
    assert {rule.area for rule in RULES} == set(Area)


def test_a_rule_is_found_in_either_case() -> None:
    assert rule(" nvl-001 ").code == "NVL-001"


def test_an_unknown_code_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown check 'NVL-01' — did you mean 'NVL-001'\?"):
        rule("NVL-01")


def test_rules_are_selected_by_area_and_by_code() -> None:
    chosen = select(RULES, ("Plugin", "nvl-002"))
    assert [rule.code for rule in chosen] == [
        "NVL-002",
        *(entry.code for entry in RULES if entry.area is Area.PLUGIN),
    ]


def test_an_unknown_area_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown subject 'kublet' — did you mean 'kubelet'\?"):
        select(RULES, ("kublet",))


@pytest.mark.parametrize("entry", RULES, ids=lambda entry: entry.code)
def test_every_url_leads_to_a_heading(entry: Rule) -> None:
    page, _, anchor = entry.url.partition("#")
    assert anchor in anchors(ROOT / page)
