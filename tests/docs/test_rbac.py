"""The table of access rights has every right of the manifests, each with its use."""

from scripts.generators.rbac import WHY, page, rights


def test_every_right_has_a_use_and_every_use_a_right() -> None:
    assert {(right.component, right.resource) for right in rights()} == set(WHY)


def test_the_page_has_a_row_for_each_right() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(list(rights())) > 15


def test_what_the_page_says_of_no_right_holds() -> None:
    for right in rights():
        assert "*" not in (right.group, right.resource, *right.verbs), right
        assert right.resource not in ("secrets", "configmaps", "pods/exec"), right
