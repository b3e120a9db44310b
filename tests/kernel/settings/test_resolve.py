"""Settings: four sources, one name, every value with its origin."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodetopo.allocation.rules import Policy
from nodetopo.cli.main import main
from nodetopo.errors import InputError
from nodetopo.kernel.settings.declare import Settings, key, options, variable
from nodetopo.kernel.settings.origin import ConfigFile
from nodetopo.kernel.settings.policies import PlacementPolicies, TimeSlicing, placement
from nodetopo.kernel.settings.resolve import Resolved


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
        ({}, {}, "scan-interval: 5", (5.0, "node.yaml:1 key scan-interval")),
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
    ("text", "expected"),
    [
        ("none", None),
        ("nvidia.com/gpu=4", TimeSlicing(replicas={"nvidia.com/gpu": 4})),
        (
            "a.b/c=2,nvidia.com/gpu=4,renameByDefault,failRequestsGreaterThanOne",
            TimeSlicing(
                replicas={"a.b/c": 2, "nvidia.com/gpu": 4},
                is_renamed=True,
                fails_requests_greater_than_one=True,
            ),
        ),
    ],
)
def test_time_slicing_is_read_and_printed(text: str, expected: TimeSlicing | None) -> None:
    found = resolve(yaml=f"time-slicing: {text}").settings.time_slicing
    assert found == expected
    assert found is None or str(found) == text


def test_only_a_shared_resource_is_renamed() -> None:
    sliced = TimeSlicing(replicas={"nvidia.com/gpu": 4}, is_renamed=True)
    names = [sliced.offered_name(name) for name in ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb")]
    assert names == ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"]


@pytest.mark.parametrize(
    ("yaml", "words"),
    [
        ("scan_interval: 5", "did you mean 'scan-interval'?"),
        ("colour: red", "node.yaml:1:9: colour: unknown key — `nodetopo run --help`"),
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
        ("placement-policy: {1: packed}", "not of the form domain/name"),
        ("placement-policy: 'best,packed'", "not a single policy for every other resource"),
        ("placement-policy: 'a.b/c=best,a.b/c=packed'", "not a single policy for a.b/c"),
        ("placement-policy: [best]", "not a printable text"),
        ("placement-policy: {a.b/c: [best]}", "not one of best,"),
        ("placement-policy: 'best,'", "not one of best,"),
        ("bandwidth-model: rings", "did you mean 'ring'?"),
        ("bandwidth-model: table", "the model `table` needs measured bandwidths"),
        ("log-level: warn", "did you mean 'warning'?"),
        ("[1, 2]", "node.yaml:1:1: expected a mapping, found the list"),
        ("hello", "node.yaml:1:1: expected a mapping, found the text 'hello'"),
        ("once: !yes true", "once: the tag '!yes' means nothing here"),
        ("placement-policy: {a.b/c: {d: [e]}}", "placement-policy.a.b/c.d: nested too deeply"),
        ("placement-policy: 'gpu*=best'", "not of the form domain/name"),
        ("dev-root: run/driver", "dev-root: 'run/driver' is a relative path"),
        ("mig-strategy: both", "not one of none, single, mixed"),
        ("time-slicing: nvidia.com/gpu", "such as nvidia.com/gpu=4"),
        ("time-slicing: nvidia.com/gpu=1", "'1' where 2 or more replicas are meant"),
        (
            "time-slicing: nvidia.com/gpu=100000",
            "a list of 100000 devices takes 6188890 bytes; a kubelet reads messages of 4194304",
        ),
        ("time-slicing: nvidia.com/gpu=two", "'two' where 2 or more"),
        ("time-slicing: gpu=2", "not of the form domain/name"),
        ("time-slicing: 'a.b/c=2,a.b/c=3'", "not a list of different resources"),
        ("time-slicing: renameByDefault", "not a list of different resources"),
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
        (
            "placement-policy: {nvidia.com/*: packed, nvidia.com/mig-*: distributed}",
            Policy.PACKED,
            Policy.DISTRIBUTED,
        ),
    ],
)
def test_each_resource_has_its_policy(text: str, gpu: Policy, mig: Policy) -> None:
    policies = resolve(yaml=text).settings.placement_policy
    found = policies.policy("nvidia.com/gpu"), policies.policy("nvidia.com/mig-1g.10gb")
    assert found == (gpu, mig)


def test_policies_are_printed_as_they_are_read() -> None:
    text = "packed,a.b/c=best,nvidia.com/gpu=numa-first,nvidia.com/mig-*=distributed"
    policies = resolve(flags={"placement_policy": text}).settings.placement_policy
    assert str(policies) == text
    assert placement(str(policies)) == policies


def test_a_table_goes_with_any_model(tmp_path: Path) -> None:
    flags = {"bandwidth_model": "table", "bandwidth_table": str(tmp_path / "t.yaml")}
    assert resolve(flags=flags).settings.bandwidth_table == tmp_path / "t.yaml"


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
    lines = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    shown = {line[0]: tuple(line[1:3]) for line in lines}
    assert (shown["log-level"], shown["numa-mode"], shown["once"], shown["log-format"]) == (
        ("debug", f"{path}:1 key log-level"),
        ("none", "environment NODETOPO_NUMA_MODE"),
        ("true", "flag --once"),
        ("auto", "default"),
    )


def test_a_name_of_a_resource_that_no_kubelet_takes_is_refused() -> None:
    with pytest.raises(InputError, match="a name of more than 63 characters"):
        Resolved.of(flags={"resource_name": f"nvidia.com/{'x' * 64}"}, environment={})
