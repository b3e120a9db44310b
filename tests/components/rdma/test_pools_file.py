"""The shared plugin's configuration: what it documents, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodetopo.components.rdma.pools_file import MANY_POOLS, parse
from nodetopo.components.rdma.settings import load_pools
from nodetopo.errors import InputError
from nodetopo.kernel.settings.resolve import Resolved
from nodetopo.rdma.pools import Pool, RdmaConfig, Selectors, SharingMode

ENTRY: dict[str, Any] = {
    "resourceName": "hca_shared_devices_a",
    "rdmaHcaMax": 1000,
    "selectors": {"vendors": ["15b3"]},
}


def read(document: object, **options: Any) -> RdmaConfig:
    return parse("config.json", json.dumps(document), **options)


def entry(**changes: Any) -> RdmaConfig:
    return read({"configList": [{**ENTRY, **changes}]})


def refused(document: object) -> str:
    with pytest.raises(InputError) as caught:
        read(document)
    assert caught.value.cure
    return str(caught.value)


def test_the_configuration_that_the_plugin_is_deployed_with_is_read() -> None:
    """Of its deployment and the network operator's default: one pool of all of a vendor."""
    config = read(
        {
            "periodicUpdateInterval": 300,
            "configList": [
                {
                    "resourceName": "hca_shared_devices_a",
                    "rdmaHcaMax": 1000,
                    "selectors": {"vendors": ["15b3"], "deviceIDs": ["1017"]},
                },
                {
                    "resourceName": "hca_shared_devices_b",
                    "rdmaHcaMax": 500,
                    "selectors": {
                        "vendors": ["15b3"],
                        "deviceIDs": ["1017"],
                        "ifNames": ["ib3", "ib4"],
                    },
                },
                {
                    "resourceName": "roce",
                    "resourcePrefix": "nvidia.com",
                    "rdmaHcaMax": 63,
                    "selectors": {
                        "vendors": [],
                        "deviceIDs": [],
                        "drivers": ["mlx5_core"],
                        "ifNames": [],
                        "linkTypes": ["ether"],
                    },
                },
            ],
        }
    )
    assert config == RdmaConfig(
        pools=(
            Pool(
                resource="rdma/hca_shared_devices_a",
                most=1000,
                selectors=Selectors(vendors=("15b3",), device_ids=("1017",)),
            ),
            Pool(
                resource="rdma/hca_shared_devices_b",
                most=500,
                selectors=Selectors(
                    vendors=("15b3",), device_ids=("1017",), if_names=("ib3", "ib4")
                ),
            ),
            Pool(
                resource="nvidia.com/roce",
                most=63,
                selectors=Selectors(drivers=("mlx5_core",), link_types=("ether",)),
            ),
        ),
    )


def test_deprecated_devices_are_names_of_interfaces() -> None:
    config = read(
        {"configList": [{"resourceName": "a", "rdmaHcaMax": 9, "devices": ["ib0", "ib1"]}]}
    )
    assert config.pools[0].selectors == Selectors(if_names=("ib0", "ib1"))
    (warning,) = config.warnings
    assert "config.json:1:" in warning
    assert "devices is deprecated" in warning


@pytest.mark.parametrize("seconds", [0, 5, 300])
def test_the_interval_of_updates_changes_nothing(seconds: int) -> None:
    document: dict[str, Any] = {"configList": [ENTRY]}
    assert read({**document, "periodicUpdateInterval": seconds}) == read(document)


def test_our_keys_are_read_and_settings_are_their_defaults() -> None:
    ours = {**ENTRY, "mode": "exclusive", "issm": False}
    (pool,) = read({"configList": [{**ours, "selectors": {"hcas": ["mlx5_0"]}}]}).pools
    assert (pool.mode, pool.with_issm) == (SharingMode.EXCLUSIVE, False)
    assert pool.selectors == Selectors(hcas=("mlx5_0",))
    (plain,) = read({"configList": [ENTRY]}, mode=SharingMode.CHOSEN, with_issm=False).pools
    assert (plain.mode, plain.with_issm) == (SharingMode.CHOSEN, False)


@pytest.mark.parametrize("mode", SharingMode)
def test_shared_pools_report_numa_nodes_only_where_the_entry_says(mode: SharingMode) -> None:
    is_always = mode is not SharingMode.SHARED
    (plain,) = entry(mode=mode.value).pools
    assert plain.reports_numa is is_always
    (pool,) = entry(mode=mode.value, numa=True).pools
    assert pool.reports_numa
    config = entry(mode=mode.value, numa=False)
    assert config.pools[0].reports_numa is is_always
    assert ["whatever numa says" in text for text in config.warnings] == [True] * is_always


def test_keys_in_another_case_are_read_as_go_reads_them() -> None:
    config = read(
        {
            "ConfigList": [
                {"resourcename": "a", "RDMAHCAMAX": 2, "selectors": {"deviceIds": ["1017"]}}
            ]
        }
    )
    assert config.pools[0].selectors.device_ids == ("1017",)
    assert len(config.warnings) == 4
    assert "deviceIds is read as deviceIDs" in config.warnings[-1]


def test_null_is_as_if_absent() -> None:
    config = entry(devices=None, resourcePrefix=None)
    assert config.pools[0].resource == "rdma/hca_shared_devices_a"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"periodicUpdateInterval": -1, "configList": [ENTRY]}, "-1 seconds — write 0 or more"),
        ({"configList": []}, "no resource is configured"),
        ({}, "no resource is configured"),
        ({"configList": [{**ENTRY, "resourceName": "a-b"}]}, "'a-b' is no name of a resource"),
        ({"configList": [{**ENTRY, "resourceName": ""}]}, "'' is no name of a resource"),
        ({"configList": [ENTRY, ENTRY]}, "rdma/hca_shared_devices_a exists already, at config"),
        ({"configList": [{**ENTRY, "rdmaHcaMax": -5}]}, "-5 devices — write 0 or more"),
        ({"configList": [{**ENTRY, "selectors": {}}]}, "an entry that selects no HCA"),
        ({"configList": [{**ENTRY, "devices": ["ib0"]}]}, "selectors and devices in one entry"),
    ],
)
def test_what_its_validator_refuses_is_refused(document: object, message: str) -> None:
    text = refused(document)
    assert message in text
    assert text.startswith("config.json:1:")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "expected a mapping"),
        ({"configLists": [ENTRY]}, "no resource is configured"),
        ({"configList": [{**ENTRY, "selectors": {"isRdma": True}}]}, "selects no HCA"),
        ({"configList": [{**ENTRY, "rdmaHcaMax": "9"}]}, "expected a whole number of devices"),
        ({"configList": [{**ENTRY, "rdmaHcaMax": 1.5}]}, "found 1.5"),
        ({"configList": [{**ENTRY, "rdmaHcaMax": True}]}, "expected a whole number of devices"),
        ({"configList": [{**ENTRY, "selectors": {"vendors": "15b3"}}]}, "expected a list"),
        ({"configList": [{**ENTRY, "selectors": {"deviceIDs": [1017]}}]}, "a text in quotes"),
        ({"configList": [{**ENTRY, "mode": "exclusiv"}]}, "did you mean 'exclusive'?"),
        ({"configList": [{**ENTRY, "issm": "yes"}]}, "expected true or false"),
        ({"configList": [{**ENTRY, "numa": 1}]}, "expected true or false"),
        ({"configList": [{"rdmaHcaMax": 1}]}, "an entry without resourceName"),
        ({"configList": [{**ENTRY, "resourceName": "a\u0007"}]}, "control characters"),
    ],
)
def test_what_go_would_refuse_is_refused(document: object, message: str) -> None:
    assert message in refused(document)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"version": 1, "configList": [ENTRY]}, "unknown key 'version' is ignored"),
        ({"configList": [{**ENTRY, "_comment": "x"}]}, "unknown key '_comment' is ignored"),
        ({"configList": [{**ENTRY, "rdmaHcaMin": 1}]}, "did you mean 'rdmaHcaMax'?"),
        (
            {"configList": [{**ENTRY, "selectors": {"vendors": ["15b3"], "pfNames": ["a"]}}]},
            "unknown key 'pfNames' is ignored",
        ),
        ({"configList": [{**ENTRY, "rootDevices": ["0000:18:00.0"]}]}, "'rootDevices' is ignored"),
    ],
)
def test_unknown_keys_are_ignored_with_a_warning(document: object, message: str) -> None:
    config = read(document)
    assert config.pools == read({"configList": [ENTRY]}).pools
    (warning,) = config.warnings
    assert message in warning
    assert warning.startswith("config.json:1:")


@pytest.mark.parametrize("count", [MANY_POOLS, MANY_POOLS + 1])
def test_many_pools_are_read_with_a_warning(count: int) -> None:
    names = [f"a{number}" for number in range(count)]
    config = read({"configList": [{**ENTRY, "resourceName": name} for name in names]})
    assert [pool.resource for pool in config.pools] == [f"rdma/{name}" for name in names]
    assert [f"{count} resources" in text for text in config.warnings] == [True] * (count > 64)


@pytest.mark.parametrize("text", ["", "{", '{"configList": [}', "- : -", "\x00"])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"config\.json"):
        parse("config.json", text)


def test_a_name_without_a_prefix_may_come_again_under_another() -> None:
    config = read({"configList": [ENTRY, {**ENTRY, "resourcePrefix": "nvidia.com"}]})
    assert [pool.resource for pool in config.pools] == [
        "rdma/hca_shared_devices_a",
        "nvidia.com/hca_shared_devices_a",
    ]
    assert "the shared plugin refuses hca_shared_devices_a" in config.warnings[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"resourcePrefix": "example_prefix"}, "is no domain"),
        ({"resourcePrefix": "x.kubernetes.io"}, "the kubelet's own"),
        ({"resourceName": "_a"}, "does not begin and end"),
        ({"resourceName": "a" * 64}, "64 characters"),
    ],
)
def test_names_that_no_kubelet_takes_are_not_offered(changes: dict[str, str], reason: str) -> None:
    config = read({"configList": [{**ENTRY, "resourceName": "b"}, {**ENTRY, **changes}]})
    assert [pool.resource for pool in config.pools] == ["rdma/b"]
    (warning,) = config.warnings
    assert reason in warning
    assert "is not offered" in warning


@pytest.mark.parametrize(
    "selectors",
    [{"vendors": ["0x15b3"]}, {"deviceIDs": ["17"]}, {"linkTypes": ["InfiniBand"]}],
)
def test_selectors_that_match_nothing_are_warned_about(selectors: dict[str, Any]) -> None:
    (warning,) = entry(selectors=selectors).warnings
    assert "matches no HCA" in warning


def test_no_number_of_devices_is_none_with_a_warning() -> None:
    document = {key: value for key, value in ENTRY.items() if key != "rdmaHcaMax"}
    config = read({"configList": [document]})
    assert config.pools[0].most == 0
    assert "no rdmaHcaMax" in config.warnings[0]


def test_the_file_of_the_settings_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"configList": [ENTRY]}))
    environment = {"NODETOPO_RDMA_CONFIG": str(path), "NODETOPO_RDMA_MODE": "chosen"}
    settings = Resolved.of(flags={}, environment=environment).settings
    config = load_pools(settings)
    assert config is not None
    assert config.pools[0].mode is SharingMode.CHOSEN
    path.unlink()
    with pytest.raises(InputError, match=r"config\.json is not a file — name an RDMA config"):
        load_pools(settings)
    assert load_pools(Resolved.of(flags={}, environment={}).settings) is None


def test_the_usual_place_is_the_default_where_the_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.json"
    monkeypatch.setattr("nodetopo.components.rdma.settings.RDMA_USUAL_PLACE", path)
    assert Resolved.of(flags={}, environment={}).settings.rdma_config is None
    path.write_text("{}")
    found = Resolved.of(flags={}, environment={})
    assert found.settings.rdma_config == path
    assert found.origins["rdma_config"] == "default, as that file is there"
    none = Resolved.of(flags={}, environment={"NODETOPO_RDMA_CONFIG": "none"})
    assert none.settings.rdma_config is None
