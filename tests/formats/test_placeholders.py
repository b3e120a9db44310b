"""Placeholders of templates, which stand where a value cannot be used."""

import pytest

from nodetopo.errors import DecodeError
from nodetopo.formats.fields import amount, as_count, as_flag, as_object, count_at
from nodetopo.formats.placeholders import bare_expression, placeholder, unfilled

FORMS = (
    "$NUM_NODES",
    "${NUM_NODES}",
    "${NUM_NODES:-2}",
    "$(NUM_NODES)",
    "{{ .Values.replicas }}",
    "{{.replicas}}",
    "<your-value>",
    "<NUMBER OF NODES>",
)


@pytest.mark.parametrize("text", FORMS)
def test_a_placeholder_is_found_alone_and_inside_a_text(text: str) -> None:
    assert [placeholder(text), placeholder(f"{text} Gi"), placeholder(f"-{text}")] == [text] * 3


@pytest.mark.parametrize(
    "value", ["", "8", "1Gi", "$", "$5", "${}", "{ }", "{{", "a < b", "<>", 8, None, ["$A"]]
)
def test_other_values_have_none(value: object) -> None:
    assert placeholder(value) is None
    assert unfilled("spec.replicas", value) is None


@pytest.mark.parametrize("value", FORMS)
def test_every_reader_of_a_value_names_the_placeholder(value: str) -> None:
    errors = []
    for read in (
        lambda: count_at({"replicas": value}, "replicas", "spec"),
        lambda: amount(value, "spec.replicas"),
        lambda: as_count(value, "spec.replicas"),
        lambda: as_flag(value, "spec.replicas"),
        lambda: as_object(value, "spec.replicas"),
    ):
        with pytest.raises(DecodeError) as caught:
            read()
        errors.append(caught.value)
    assert {error.cause for error in errors} == {f"spec.replicas: this is the placeholder {value}"}
    assert all(error.cure.startswith("replace it") for error in errors)
    assert {"helm template" in error.cure for error in errors} == {value.startswith("{{")}


def test_a_part_of_a_value_is_said_to_be_one() -> None:
    with pytest.raises(DecodeError, match=r"this has the placeholder \$\{MEM\}"):
        amount("${MEM}Gi", "limits.memory")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\nb: {{ .Values.b }}\n", (2, "{{ .Values.b }}")),
        ("{{- if .Values.a }}\na: 1\n{{- end }}\n", (1, "{{- if .Values.a }}")),
        ("a:\n  - {{ .b }}\n", (2, "{{ .b }}")),
        ("a: '{{ .b }}'\n", None),
        ('a: "x {{ .b }}"\n', None),
        ("# {{ .b }}\na: 1\n", None),
        ("a: {b: {c: 1}}\n", None),
    ],
)
def test_expressions_outside_quotes_are_found(text: str, found: tuple[int, str] | None) -> None:
    assert bare_expression(text) == found
