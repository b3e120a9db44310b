"""Settings: four sources, one name, every value with its origin."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.cli.main import main
from agent.config import ConfigFile, Resolved, Settings, key, options
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
            text = str(value) if isinstance(value, Path) else value
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
