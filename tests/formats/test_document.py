"""Documents are read as values, with or without places, or refused in one line."""

import gc
import re
import weakref
from datetime import date
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.errors import InputError
from nodetopo.formats.document import (
    MAX_CONFIGURATION_ALIASES,
    MAX_CONFIGURATION_BYTES,
    Value,
    load,
    load_all,
    read_configuration,
    read_values,
)
from nodetopo.formats.safe import YAML
from tests.kernel.settings.resolving import resolve

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(alphabet=st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), max_size=9),
    st.dates(),
)
WORDS = st.sampled_from(
    [
        *("version", "v1", "flags", "plugin", "gfd", "sharing", "timeSlicing", "mps", "resources"),
        *("name", "replicas", "nvidia.com/gpu", "imex", "channelIDs", "nodetopo", "migStrategy"),
        *("deviceListStrategy", "sleepInterval", "devices", "rename", "gpus", "passDeviceSpecs"),
    ]
)
DOCUMENTS = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | SCALARS, inner, max_size=4),
    max_leaves=12,
)


def root(text: str) -> Value:
    """Return the document *text*, which is one."""
    found, _warnings = read_configuration("n.yaml", text)
    assert found is not None
    return found


@given(DOCUMENTS)
def test_any_document_is_settled_or_refused_in_one_line(document: Any) -> None:
    text = yaml.safe_dump(document)
    try:
        found = resolve(text)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is right
        assert error.cure  # noqa: PT017
    else:
        assert all("\n" not in warning for warning in found.warnings)


@given(st.text(alphabet="{}[]:,-&*!|>'\"#%@ \n\tab<1~?", max_size=40))
def test_any_text_is_settled_or_refused_in_one_line(text: str) -> None:
    try:
        assert resolve(text).settings.node_name
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert str(error).startswith("n.yaml")  # noqa: PT017


@given(st.lists(SCALARS, min_size=1))
def test_plain_values_are_those_of_yaml(values: list[Any]) -> None:
    text = yaml.safe_dump({"a": values})
    expected = [str(item) if isinstance(item, date) else item for item in yaml.safe_load(text)["a"]]
    assert root(text).entries()["a"].plain() == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "n.yaml:1:5: not YAML: while parsing a flow node expected the node content"),
        ("a: *b", "n.yaml:1:4: not YAML: found undefined alias 'b'"),
        ("\x00", "n.yaml: not YAML"),
        ("[" * 5000, "nested too deeply"),
        ("x" * (MAX_CONFIGURATION_BYTES + 1), "n.yaml is larger than 64 KiB"),
        ("? [a]\n: b", "n.yaml:1:3: a key that is not one word"),
        ("<<: 5", "n.yaml:1:5: expected a mapping to merge, found 5"),
        ("&a {<<: *a}", "`<<` merges a mapping into itself"),
        (f"a: &a 1\nb: [{'*a,' * 101}]", f"more than {MAX_CONFIGURATION_ALIASES} aliases"),
        (f"once: {'9' * 5000}", "once: expected a number, found 9999"),
        ("once: .inf", "expected a finite number, found .inf"),
        ("once: 0x_", "expected a number, found 0x_"),
        ('once: !!int ""', "once: expected a number"),
        ("once: !!bool x", "once: expected a number"),
        ("scan-interval: [[[1]]]", "n.yaml:1:18: scan-interval[0][0]: nested too deeply"),
        (f"log-level: {'é' * 500}", "log-level: 'ééééé"),
    ],
)
def test_a_bad_document_is_refused_at_its_place(text: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve(text)
    assert words in str(raised.value)
    assert len(str(raised.value)) < 300


def test_aliases_that_double_cost_nothing() -> None:
    levels = "".join(f"l{n + 1}: &l{n + 1} [{', '.join([f'*l{n}'] * 4)}]\n" for n in range(20))
    found = root(f"l0: &l0 [x, x]\n{levels}").entries()["l20"]
    assert len(found.items()) == 4
    with pytest.raises(InputError, match="nested too deeply"):
        found.plain()


def test_merges_that_double_give_each_key_once() -> None:
    levels = "".join(f"l{n + 1}: &l{n + 1} {{<<: [*l{n}, *l{n}], k{n}: 1}}\n" for n in range(40))
    found = root(f"l0: &l0 {{k: 1}}\n{levels}").entries()["l40"]
    assert set(found.entries()) == {"k", *(f"k{n}" for n in range(40))}


def test_what_is_written_is_stronger_than_what_is_merged() -> None:
    merged = root("a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}").entries()["c"]
    assert merged.plain() == {"x": 3, "y": 1, "z": 2}


def test_the_last_of_a_repeated_key_counts_and_that_is_said() -> None:
    found = resolve("log-level: debug\nlog-level: error\n")
    assert found.settings.log_level == "error"
    assert found.warnings == ("n.yaml:2:1: 'log-level' replaces that of line 1",)


def test_only_the_first_document_counts_and_that_is_said() -> None:
    found = resolve("log-level: debug\n---\nlog-level: error\n")
    assert found.settings.log_level == "debug"
    assert found.warnings == ("n.yaml: only the first document is read",)


def test_a_value_that_was_read_keeps_nothing_of_its_file_in_memory() -> None:
    root, _warnings = read_configuration("f", "key: 5")
    assert root is not None
    value = root.entries()["key"]
    assert value.scalar() == 5
    node = weakref.ref(value.node)
    del root, value
    gc.collect()
    assert node() is None


def test_aliases_and_merges_are_resolved() -> None:
    text = "a: &x {k: 1}\nb: *x\nc: {<<: *x, m: 2}\n"
    assert load(text) == {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "m": 2}}


def test_documents_come_in_order() -> None:
    assert load_all("a: 1\n---\n---\n- b\n") == [{"a": 1}, None, ["b"]]
    assert load_all("") == []
    assert load("") is None


@pytest.mark.parametrize("rest", ["", "---\n", "...\n", "---\nb: 2\n", "---\n{[ \n"])
def test_only_the_first_document_counts_where_one_is_expected(rest: str) -> None:
    assert load(f"a: 1\n{rest}") == {"a": 1}
    assert [value.plain() for value in read_values("f", f"a: 1\n{rest}", most=1)] == [{"a": 1}]


def test_json_that_tabs_indent_is_read() -> None:
    assert load('\n{\n\t"a": [1]\n}') == {"a": [1]}


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{level}: &a{level} [{','.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BOMB, "more than 100000 nodes, aliases resolved in line 5"),
        ("[" + "a," * 150_000 + "]", "more than 100000 nodes, aliases resolved in line 1"),
        ("[" * 65 + "]" * 65, "nested more than 64 deep in line 1"),
        ("- " * 65 + "a", "nested more than 64 deep in line 1"),
        ("a: &a\n- *a", "an alias inside what it stands for in line 2"),
        ("a: *b", "not YAML: found undefined alias in line 1"),
        ("#" * (YAML.characters + 1), "larger than 2 Mi characters"),
        ("a: b\n\tc: d", "not YAML: found a tab character that violates indentation in line 2"),
        ("a: 1\nb: @", "not YAML: found character that cannot start any token in line 2"),
        ("a: !!int one", "not YAML: not a whole number in line 1"),
        ("a: !!bool perhaps", "not YAML: not a boolean in line 1"),
        ("a: .inf", "not YAML: not a number that JSON has in line 1"),
        ("a: !!binary aGk=", "not YAML: could not determine a constructor for the tag"),
        ("a: !!python/object:os.system x", "not YAML: could not determine a constructor"),
        ("? [1]\n: 2", "not YAML: a key that is list in line 1"),
        ("a: !!map b", "not YAML: not a map in line 1"),
        ("~: 1", "not YAML: a key that is NoneType in line 1"),
        ("a: \x00", "not YAML: unacceptable character"),
    ],
    ids=range(18),
)
def test_hostile_yaml_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}"):
        load_all(text)


def test_json_that_nests_too_deeply_is_refused_too() -> None:
    with pytest.raises(ValueError, match="nested more than 64 deep in line 1"):
        load('{"a": ' + "[" * 100 + "]" * 100 + "}")


def test_values_know_their_lines_in_every_document() -> None:
    first, empty, second = read_values("f.yaml", "a: 1\n---\n---\nb:\n- {c: d}\n")
    assert empty.is_null()
    assert first.entries()["a"].where == "f.yaml:1:4: a"
    assert second.entries()["b"].items()[0].entries()["c"].where == "f.yaml:5:7: b[0].c"


def test_hostile_yaml_makes_no_values() -> None:
    with pytest.raises(ValueError, match=r"^more than 100000 nodes, aliases resolved in line 5"):
        read_values("f.yaml", BOMB)


def test_repeated_keys_are_found_at_any_depth_and_once_for_each_alias() -> None:
    text = "a: 1\na: 2\nb: &b [{c: 1, c: 2, c: 3}]\nd: *b\ne: {<<: {}, <<: {}}\n"
    (document,) = read_values("f.yaml", text, may_repeat=True)
    assert list(document.repeated_below()) == [("", "a"), ("b[0]", "c")]
