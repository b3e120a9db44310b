"""NVIDIA's settings from file, environment and command line, beside ours."""

from itertools import product
from pathlib import Path

import pytest

from nodetopo.allocation.rules import Policy
from nodetopo.errors import InputError
from nodetopo.kernel.settings.nvidia import effects
from nodetopo.kernel.settings.nvidia.names import NAMES, Name, ValueKind
from nodetopo.kernel.settings.origin import Given, SettingSource
from tests.kernel.settings.resolving import resolve

FILE = "flags: {migStrategy: single}"
OURS = "nodetopo: {mig-strategy: mixed}"
TAKEN = ("mixed", "envvar", "index", "nvml", "packed", "single")
"""A word of each setting that takes one of several."""

OWN_TEXTS = {"cdi-annotation-prefix": "a.b/", "NODE_LABEL": "a.b/c"}
"""Of the texts that are not paths."""


@pytest.mark.parametrize(
    ("in_file", "in_environment", "on_command_line"), list(product((False, True), repeat=3))
)
def test_the_command_line_wins_over_the_environment_over_the_file(
    *, in_file: bool, in_environment: bool, on_command_line: bool
) -> None:
    found = resolve(
        "flags: {nvidiaDevRoot: /file}" if in_file else None,
        environment={"NVIDIA_DEV_ROOT": "/environment"} if in_environment else {},
        nvidia_flags={"nvidia-dev-root": "/flag"} if on_command_line else {},
    )
    expected = Path("/file") if in_file else None
    expected = Path("/environment") if in_environment else expected
    expected = Path("/flag") if on_command_line else expected
    assert found.settings.dev_root == expected


@pytest.mark.parametrize(
    ("file", "environment", "flags", "expected"),
    [
        (FILE, {}, {}, ("single", "n.yaml:1 key flags.migStrategy")),
        (FILE, {"MIG_STRATEGY": "mixed"}, {}, ("mixed", "environment MIG_STRATEGY")),
        (OURS, {"MIG_STRATEGY": "single"}, {}, ("single", "environment MIG_STRATEGY")),
        (
            FILE,
            {"MIG_STRATEGY": "mixed", "NODETOPO_MIG_STRATEGY": "none"},
            {},
            ("none", "environment NODETOPO_MIG_STRATEGY"),
        ),
        (
            FILE,
            {"MIG_STRATEGY": "mixed"},
            {"mig_strategy": "none"},
            ("none", "flag --mig-strategy"),
        ),
        (f"{FILE}\n{OURS}", {}, {}, ("mixed", "n.yaml:2 key nodetopo.mig-strategy")),
    ],
)
def test_in_one_place_our_name_wins_and_a_stronger_place_over_both(
    file: str,
    environment: dict[str, str],
    flags: dict[str, object],
    expected: tuple[str, str],
) -> None:
    found = resolve(file, environment=environment, flags=flags)
    assert (found.settings.mig_strategy, found.origins["mig_strategy"]) == expected


def test_a_contradiction_in_one_place_is_said_and_agreement_is_not() -> None:
    found = resolve(f"{FILE}\n{OURS}").warnings
    assert found[0] == (
        "n.yaml:2 key nodetopo.mig-strategy wins over n.yaml:1 key flags.migStrategy, which says "
        "otherwise"
    )
    agreeing = resolve(f"{FILE}\nnodetopo: {{mig-strategy: single}}").warnings
    overridden = resolve(FILE, environment={"NODETOPO_MIG_STRATEGY": "mixed"}).warnings
    assert not any("wins over" in line for line in (*agreeing, *overridden))


@pytest.mark.parametrize("name", [name for name in NAMES if name.variables], ids=lambda n: n.name)
def test_every_variable_is_read_and_the_first_of_two_counts(name: Name) -> None:
    good = {
        ValueKind.SWITCH: "1",
        ValueKind.NUMBERS: "0",
        ValueKind.DURATION: "1m",
        ValueKind.TEXT: "/a/kubelet.sock",
    }
    value = OWN_TEXTS.get(name.name) or good.get(name.kind)
    value = value or next(word for word in reversed(name.words) if word in TAKEN)
    found = resolve(environment=dict.fromkeys(reversed(name.variables), value)).nvidia[name.name]
    assert found.origin == f"environment {name.variables[0]}"
    expected = {ValueKind.SWITCH: True, ValueKind.NUMBERS: (0,), ValueKind.WORDS: (value,)}
    assert found.value == expected.get(name.kind, value)


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True"])
def test_a_switch_is_read_as_go_reads_it(text: str) -> None:
    for given, expected in ((text, True), ("", False), ("0", False), ("F", False)):
        found = resolve(environment={"PASS_DEVICE_SPECS": given}).nvidia["pass-device-specs"]
        assert found.value is expected


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("FAIL_ON_INIT_ERROR", "yes", "environment FAIL_ON_INIT_ERROR: 'yes' is neither true nor"),
        ("MIG_STRATEGY", "Mixed", "did you mean 'mixed'?"),
        ("DEVICE_LIST_STRATEGY", "envvar,", "is not one of envvar"),
        ("DEVICE_LIST_STRATEGY", "device-specs", "it is pass-device-specs there"),
        ("IMEX_CHANNEL_IDS", "0,1", "neither empty nor channel 0 alone"),
        ("IMEX_CHANNEL_IDS", "zero", "neither empty nor channel 0 alone"),
        ("GFD_SLEEP_INTERVAL", "60", "not a duration such as 60s"),
        ("KUBELET_SOCKET", "/a/other.sock", "is not the path of a kubelet.sock"),
        ("KUBELET_SOCKET", "kubelet.sock", "is not the path of a kubelet.sock"),
        ("NVIDIA_DRIVER_ROOT", "run", "environment NVIDIA_DRIVER_ROOT: 'run' is relative"),
        ("NVIDIA_DRIVER_ROOT", "/a\n", "not a printable text"),
        ("NODE_LABEL", "a/b/c", "environment NODE_LABEL: 'a/b/c' is not the key of a label"),
        ("FALLBACK_STRATEGIES", "named,other", "'named,other' is not one of named, single, empty"),
    ],
)
def test_a_variable_that_nvidias_refuses_is_refused(variable: str, text: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve(environment={variable: text})
    assert words in str(raised.value)
    assert raised.value.cure


def test_an_empty_variable_of_nvidias_is_unset() -> None:
    names = ("MIG_STRATEGY", "DEVICE_LIST_STRATEGY", "IMEX_CHANNEL_IDS", "NVIDIA_DEV_ROOT")
    assert resolve(environment=dict.fromkeys(names, "")).nvidia == {}


def test_the_device_root_is_looked_up_unless_it_is_given() -> None:
    root = {"NVIDIA_DRIVER_ROOT": "/run/nvidia/driver"}
    assert resolve(environment=root).settings.dev_root is None
    both = resolve("flags: {nvidiaDevRoot: /dev-root}", environment=root)
    assert both.settings.dev_root == Path("/dev-root")


def test_the_socket_names_the_directory() -> None:
    found = resolve(nvidia_flags={"kubelet-socket": "/k/device-plugins/kubelet.sock"})
    assert found.settings.device_plugin_dir == Path("/k/device-plugins")


def test_an_empty_socket_leaves_the_registration_to_the_plugin_watcher() -> None:
    found = resolve(environment={"KUBELET_SOCKET": ""})
    assert (found.settings.registration, found.origins["registration"]) == (
        "watcher",
        "environment KUBELET_SOCKET",
    )
    assert found.settings.device_plugin_dir == Path("/var/lib/kubelet/device-plugins")
    assert (
        "environment KUBELET_SOCKET: kubelet.sock is not spoken to; the plugin watcher must find us"
    ) in found.warnings


def test_the_variables_of_nvidias_config_manager_choose_named_configs() -> None:
    found = resolve(
        environment={
            "CONFIG_FILE_SRCDIR": "/available-configs",
            "NODE_LABEL": "a.b/config",
            "DEFAULT_CONFIG": "large",
            "FALLBACK_STRATEGIES": "single,empty",
        }
    ).settings
    assert (found.config_dir, found.config_label) == (Path("/available-configs"), "a.b/config")
    assert (found.default_config, found.config_fallbacks) == ("large", ("single", "empty"))


def test_an_empty_default_config_is_none() -> None:
    assert resolve(environment={"DEFAULT_CONFIG": ""}).settings.default_config is None


@pytest.mark.parametrize("directory", ["usr/lib64", "usr/lib/x86_64-linux-gnu", "lib64"])
def test_the_library_is_found_below_the_driver_root(tmp_path: Path, directory: str) -> None:
    library = tmp_path / directory / "libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    found = resolve(environment={"CONTAINER_DRIVER_ROOT": str(tmp_path)})
    assert found.settings.nvml_library == library
    assert not any("libnvidia-ml" in line for line in found.warnings)


@pytest.mark.parametrize(
    ("file", "environment", "flags", "expected"),
    [
        ("flags: {plugin: {deviceListStrategy: envvar}}", {}, {}, "envvar,device-specs"),
        ("nodetopo: {device-list-strategy: cdi-cri}", {}, {}, "cdi-cri"),
        (None, {"DEVICE_LIST_STRATEGY": "cdi-cri,envvar"}, {}, "cdi-cri,envvar,device-specs"),
        (None, {"NODETOPO_DEVICE_LIST_STRATEGY": "envvar"}, {}, "envvar"),
        (None, {"NODETOPO_DEVICE_LIST_STRATEGY": "device-specs"}, {}, "device-specs"),
        (None, {}, {"device_list_strategy": "envvar"}, "envvar"),
        (None, {}, {}, "auto,device-specs"),
    ],
)
def test_device_specs_are_passed_beside_what_is_not_cdi(
    file: str | None, environment: dict[str, str], flags: dict[str, object], expected: str
) -> None:
    asked = {"PASS_DEVICE_SPECS": "true", **environment}
    found = resolve(file, environment=asked, flags=flags)
    assert ",".join(found.settings.device_list_strategy) == expected


def test_device_specs_are_passed_with_both_flags() -> None:
    found = resolve(
        flags={"device_list_strategy": "envvar"}, nvidia_flags={"pass-device-specs": "true"}
    )
    assert found.settings.device_list_strategy == ("envvar", "device-specs")
    assert found.origins["device_list_strategy"] == (
        "flag --device-list-strategy, flag --pass-device-specs"
    )


def test_our_strategies_without_device_specs_win_and_that_is_said() -> None:
    environment = {"NODETOPO_DEVICE_LIST_STRATEGY": "envvar", "PASS_DEVICE_SPECS": "1"}
    assert (
        "environment NODETOPO_DEVICE_LIST_STRATEGY wins over environment PASS_DEVICE_SPECS: "
        "no device-specs"
    ) in resolve(environment=environment).warnings


SLICED = "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}"


@pytest.mark.parametrize(
    ("file", "shared", "gpu", "mig"),
    [
        (SLICED, "nvidia.com/gpu", Policy.PACKED, Policy.BEST),
        ("flags: {migStrategy: single}", "nvidia.com/gpu", Policy.PACKED, Policy.BEST),
        ("flags: {migStrategy: mixed}", "nvidia.com/mig-1g.5gb", Policy.BEST, Policy.PACKED),
        (
            f"{SLICED}\nflags: {{migStrategy: mixed}}",
            "nvidia.com/gpu",
            Policy.PACKED,
            Policy.PACKED,
        ),
        (f"{SLICED}\nflags: {{migStrategy: single}}", "nvidia.com/gpu", Policy.PACKED, Policy.BEST),
    ],
)
def test_shared_devices_alone_follow_the_policy_for_them(
    file: str, shared: str, gpu: Policy, mig: Policy
) -> None:
    policies = resolve(
        file, environment={"SHARED_DEVICES_ALLOCATION_POLICY": "packed"}
    ).settings.placement_policy
    assert policies.policy(shared) is Policy.PACKED
    assert policies.policy("nvidia.com/gpu") is gpu
    assert policies.policy("nvidia.com/mig-1g.5gb") is mig


def test_our_placement_policy_wins_over_the_one_for_shared_devices() -> None:
    text = f"{SLICED}\nnodetopo: {{placement-policy: numa-first}}\n"
    asked = "flags: {plugin: {sharedDevicesAllocationPolicy: distributed}}"
    found = resolve(text + asked)
    assert found.settings.placement_policy.policy("nvidia.com/gpu") is Policy.NUMA_FIRST
    assert any("placement-policy wins over" in line for line in found.warnings)


def test_envvar_is_taken_with_a_warning() -> None:
    found = resolve(flags={"device_list_strategy": "cdi-cri,envvar"}).warnings
    assert [line.partition(" a pod")[0] for line in found] == [
        "flag --device-list-strategy: envvar:"
    ]
    assert resolve(flags={"device_list_strategy": "cdi-cri"}).warnings == ()


def test_a_strategy_that_is_not_here_yet_is_refused() -> None:
    given = Given(value=("none-such",), origin="n.yaml:1 key x", place=SettingSource.FILE)
    with pytest.raises(InputError, match=r"n\.yaml:1 key x: none-such is not supported"):
        effects.translated({"device-list-strategy": given})


def test_nothing_of_nvidias_gives_no_warning() -> None:
    assert resolve("log-level: debug", environment={"NODE_NAME": "n"}).warnings == ()


def test_hooks_are_disabled_as_nvidias_plugin_reads_them() -> None:
    words = "disable-device-node-modification, update-ldcache"
    found = resolve(environment={"CDI_DISABLE_HOOKS": words})
    assert found.settings.cdi_disable_hooks == (
        "disable-device-node-modification",
        "update-ldcache",
    )
    assert found.origins["cdi_disable_hooks"] == "environment CDI_DISABLE_HOOKS"
