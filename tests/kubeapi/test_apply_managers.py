"""Who else writes fields of an object."""

from typing import Any

from nodetopo.kubeapi.apply import other_managers

ZONES = ("zones", "attributes")


def entry(manager: str, **fields: Any) -> dict[str, Any]:
    return {"manager": manager, "fieldsV1": {f"f:{name}": value for name, value in fields.items()}}


def test_managers_of_the_fields_are_named_in_order_and_once_each() -> None:
    entries = [
        entry("nfd", zones={}),
        entry("exporter", attributes={}),
        entry("nfd", attributes={}),
        entry("kubectl", metadata={"f:labels": {"f:zones": {}}}),
        entry("nodetopo", zones={}),
    ]
    assert other_managers({"managedFields": entries}, ZONES) == ("exporter", "nfd")


def test_fields_may_lie_deep() -> None:
    entries = [entry("npe", metadata={"f:annotations": {"f:a.io/b": {}}}), entry("x")]
    below = ("metadata", "annotations")
    assert other_managers({"managedFields": entries}, ("a.io/b",), below) == ("npe",)


def test_without_managed_fields_nobody_is_named() -> None:
    assert other_managers({}, ZONES) == ()
