"""A configuration file is read with places, or refused in one line whatever it holds."""

import gc
import weakref
from datetime import date
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.config.document import MAX_ALIASES, MAX_BYTES, Value, load
from agent.errors import InputError
from tests.config.resolving import resolve

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
    found, _warnings = load("n.yaml", text)
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
        ("x" * (MAX_BYTES + 1), "n.yaml is larger than 64 KiB"),
        ("? [a]\n: b", "n.yaml:1:3: a key that is not one word"),
        ("<<: 5", "n.yaml:1:5: expected a mapping to merge, found 5"),
        ("&a {<<: *a}", "`<<` merges a mapping into itself"),
        (f"a: &a 1\nb: [{'*a,' * (MAX_ALIASES + 1)}]", f"more than {MAX_ALIASES} aliases"),
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
    root, _warnings = load("f", "key: 5")
    assert root is not None
    value = root.entries()["key"]
    assert value.scalar() == 5
    node = weakref.ref(value.node)
    del root, value
    gc.collect()
    assert node() is None
