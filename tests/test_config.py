"""Settings: four sources, one name, every value with its origin."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.allocation.rules import Policy
from agent.cli.main import main
from agent.config import ConfigFile, Resolved, Settings, key, options
from agent.config.bandwidth_file import load, parse
from agent.config.placement import PlacementPolicies, placement
from agent.config.settings import variable
from agent.errors import InputError


def resolve(
    *,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    yaml: str | None = None,
) -> Resolved:
    """Resolve with nothing from outside."""
    file = None if yaml is None else ConfigFile(name="node.yaml", text=yaml)
    return Resolved.of(flags=flags or {}, environment=environment or {}, file=file)


def test_nothing_given_leaves_the_defaults() -> None:
    resolved = resolve(environment={"NODE_NAME": "gpu-17"})
    assert resolved.settings == Settings(node_name="gpu-17")


@pytest.mark.parametrize(
    ("flags", "environment", "yaml", "expected"),
    [
        ({}, {}, None, (60.0, "default")),
        ({}, {}, "scan-interval: 5", (5.0, "node.yaml key scan-interval")),
        (
            {},
            {"NODETOPO_SCAN_INTERVAL": "6s"},
            "scan-interval: 5",
            (6.0, "environment NODETOPO_SCAN_INTERVAL"),
        ),
        (
            {"scan_interval_s": "2m"},
            {"NODETOPO_SCAN_INTERVAL": "6s"},
            "scan-interval: 5",
            (120.0, "flag --scan-interval"),
        ),
    ],
)
def test_the_stronger_source_wins_and_is_named(
    flags: dict[str, object],
    environment: dict[str, str],
    yaml: str | None,
    expected: tuple[float, str],
) -> None:
    resolved = resolve(flags=flags, environment=environment, yaml=yaml)
    found = resolved.settings.scan_interval_s, resolved.origins["scan_interval_s"]
    assert found == expected


def test_all_spellings_of_a_setting_come_from_its_name() -> None:
    assert (key("scan_interval_s"), variable("scan_interval_s")) == (
        "scan-interval",
        "NODETOPO_SCAN_INTERVAL",
    )


def test_every_default_passes_its_own_reader() -> None:
    settings = Settings(node_name="n")
    for name, option in options().items():
        value: Any = getattr(settings, name)
        if value is not None:
            text = str(value) if isinstance(value, Path | PlacementPolicies) else value
            assert option.read(text) == value, name


@pytest.mark.parametrize(
    ("yaml", "words"),
    [
        ("scan_interval: 5", "did you mean 'scan-interval'?"),
        ("colour: red", "unknown key in node.yaml: 'colour'"),
        ("scan-interval: true", "not a duration"),
        ("scan-interval: 0", "shorter than 1 s"),
        ("once: maybe", "neither true nor false"),
        ("node-name: 12", "not a printable text"),
        ("resource-name: gpu", "not of the form domain/name"),
        ("metrics-address: '9430'", "not of the form host:port"),
        ("metrics-address: 'a:99999'", "not of the form host:port"),
        ("device-list-strategy: [cdi-cri, cdi]", "did you mean 'cdi-cri'?"),
        ("device-list-strategy: [envvar, envvar]", "different values"),
        ("placement-policy: numa-frist", "did you mean 'numa-first'?"),
        ("placement-policy: nvidia", "for comparison only: `nodetopo allocate --policy nvidia`"),
        ("placement-policy: {nvidia.com/gpu: best-effort}", "for comparison only"),
        ("placement-policy: gpu=packed", "not of the form domain/name"),
        ("placement-policy: {1: packed}", "not a printable text"),
        ("placement-policy: 'best,packed'", "not a single policy for every other resource"),
        ("placement-policy: 'a.b/c=best,a.b/c=packed'", "not a single policy for a.b/c"),
        ("placement-policy: [best]", "not a printable text"),
        ("placement-policy: {a.b/c: [best]}", "not one of best,"),
        ("placement-policy: 'best,'", "not one of best,"),
        ("bandwidth-model: rings", "did you mean 'ring'?"),
        ("bandwidth-model: table", "the model `table` needs measured bandwidths"),
        ("log-level: warn", "did you mean 'warning'?"),
        ("[1, 2]", "not a list of `key: value` lines"),
        ("a: [", "not YAML"),
        ("{machine: dgx-1v, snapshot: x.json}", "both a machine and a snapshot"),
    ],
)
def test_a_bad_file_is_refused_with_a_cure(yaml: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve(yaml=yaml)
    assert words in str(raised.value)
    assert raised.value.cure
    assert "\n" not in str(raised.value)


def test_an_unknown_variable_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"did you mean 'NODETOPO_SYSFS_ROOT'\?"):
        resolve(environment={"NODETOPO_SYSFS_ROT": "/host/sys"})


@pytest.mark.parametrize(
    "name",
    [
        "NODETOPO_SERVICE_HOST",
        "NODETOPO_SERVICE_PORT_METRICS",
        "NODETOPO_PORT",
        "NODETOPO_PORT_9430_TCP_ADDR",
        "NODETOPO_METRICS_SERVICE_HOST",
    ],
)
def test_a_service_called_nodetopo_does_not_stop_the_daemon(name: str) -> None:
    assert resolve(environment={name: "10.0.0.1"}).settings.machine is None


def test_an_empty_variable_is_not_set() -> None:
    assert resolve(environment={"NODETOPO_MACHINE": ""}).settings.machine is None


def test_an_empty_file_changes_nothing() -> None:
    assert resolve(yaml="# nothing\n", environment={"NODE_NAME": "n"}).settings.node_name == "n"


def test_a_list_is_read_from_yaml_and_from_text() -> None:
    expected = ("cdi-cri", "envvar")
    from_yaml = resolve(yaml="device-list-strategy: [cdi-cri, envvar]").settings
    from_text = resolve(flags={"device_list_strategy": "cdi-cri,envvar"}).settings
    assert (from_yaml.device_list_strategy, from_text.device_list_strategy) == (expected, expected)


@pytest.mark.parametrize(
    ("text", "gpu", "mig"),
    [
        ("", Policy.BEST, Policy.BEST),
        ("placement-policy: numa-first", Policy.NUMA_FIRST, Policy.NUMA_FIRST),
        (
            "placement-policy: nvidia.com/gpu=numa-first,nvidia.com/mig-1g.10gb=packed",
            Policy.NUMA_FIRST,
            Policy.PACKED,
        ),
        (
            "placement-policy: distributed, nvidia.com/mig-1g.10gb = packed",
            Policy.DISTRIBUTED,
            Policy.PACKED,
        ),
        (
            "placement-policy: {nvidia.com/gpu: nic-required, '*': packed}",
            Policy.NIC_REQUIRED,
            Policy.PACKED,
        ),
    ],
)
def test_each_resource_has_its_policy(text: str, gpu: Policy, mig: Policy) -> None:
    policies = resolve(yaml=text).settings.placement_policy
    found = policies.policy("nvidia.com/gpu"), policies.policy("nvidia.com/mig-1g.10gb")
    assert found == (gpu, mig)


def test_policies_are_printed_as_they_are_read() -> None:
    text = "packed,a.b/c=best,nvidia.com/gpu=numa-first"
    policies = resolve(flags={"placement_policy": text}).settings.placement_policy
    assert str(policies) == text
    assert placement(str(policies)) == policies


def test_a_table_goes_with_any_model(tmp_path: Path) -> None:
    flags = {"bandwidth_model": "table", "bandwidth_table": str(tmp_path / "t.yaml")}
    assert resolve(flags=flags).settings.bandwidth_table == tmp_path / "t.yaml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not YAML"),
        ("[1, 2]", "t.yaml: not a bandwidth table"),
        ('{"kind": NaN}', "kind: expected"),
        ("kind: x", "kind: expected 'nodetopo-bandwidth-table', found 'x'"),
        ("a: &a [*a]", "unknown key 'a'"),
        (f"kind: {'9' * 5000}", "not YAML"),
        ("x" * ((1 << 18) + 1), "larger than 256 KiB of YAML — save it as JSON"),
    ],
)
def test_a_file_that_is_no_bandwidth_table_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        parse("t.yaml", text)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_bandwidth_table_is_read_as_yaml_and_as_json(tmp_path: Path) -> None:
    document = {
        "kind": "nodetopo-bandwidth-table",
        "version": 1,
        "unit": "GB/s",
        "pairs": [{"gpus": [0, 1], "bandwidth": 24.1}],
    }
    path = tmp_path / "table"
    found = []
    for text in (json.dumps(document), yaml.safe_dump(document)):
        path.write_text(text, encoding="utf-8")
        found.append(load(path))
    assert found[0] == found[1]
    assert [entry.tenths_gb_s for entry in found[0].pairs] == [241]


def test_a_bandwidth_table_must_be_a_file_of_text(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for name, words in (("none", "is not a file"), (".", "is not a file"), ("bytes", "not UTF-8")):
        with pytest.raises(InputError, match=words):
            load(tmp_path / name)


def test_no_metrics_address_is_spelled_none() -> None:
    assert resolve(flags={"metrics_address": "none"}).settings.metrics_address is None


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        ({}, {}, False),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True),
        ({"kubeconfig": "/etc/kubeconfig"}, {}, True),
        ({"publish_labels": False}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
    ],
)
def test_labels_are_published_where_there_is_an_api_server(
    flags: dict[str, object],
    environment: dict[str, str],
    *,
    expected: bool,
) -> None:
    assert resolve(flags=flags, environment=environment).settings.publish_labels is expected


def test_a_flag_takes_the_place_of_the_other_kind_of_machine() -> None:
    settings = resolve(
        flags={"snapshot": "node.json"},
        environment={"NODETOPO_MACHINE": "dgx-1v"},
    ).settings
    assert (settings.machine, settings.snapshot) == (None, Path("node.json"))


def test_print_config_shows_value_and_origin(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("log-level: debug\n", encoding="utf-8")
    monkeypatch.setenv("NODETOPO_CONFIG", str(path))
    monkeypatch.setenv("NODETOPO_NUMA_MODE", "none")
    assert main(["run", "--print-config", "--once"]) == 0
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    shown = {name: (value, origin) for name, value, origin in lines}
    assert (shown["log-level"], shown["numa-mode"], shown["once"], shown["log-format"]) == (
        ("debug", f"{path} key log-level"),
        ("none", "environment NODETOPO_NUMA_MODE"),
        ("true", "flag --once"),
        ("auto", "default"),
    )
