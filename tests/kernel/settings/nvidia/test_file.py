"""NVIDIA's file of ``version: v1``: what its device plugin takes is taken, the rest refused.

What is taken, read and refused was compared with ``api/config/v1`` of k8s-device-plugin v0.19.0
on files of these forms.
"""

from pathlib import Path

import pytest

from nodetopo.errors import InputError
from nodetopo.kernel.settings.policies import TimeSlicing
from tests.kernel.settings.resolving import STRATEGY, resolve, said

SHARED = "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}}\n"


def test_every_setting_of_the_sample_of_the_documentation_is_taken() -> None:
    found = resolve(
        """
version: v1
flags:
  migStrategy: "none"
  failOnInitError: false
  nvidiaDriverRoot: "/"
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: "envvar"
    deviceIDStrategy: "uuid"
"""
    )
    assert found.settings.device_list_strategy == ("envvar", "device-specs")
    assert found.settings.mig_strategy == "none"
    assert found.origins["mig_strategy"] == "n.yaml:4 key flags.migStrategy"
    assert [line.partition(": envvar")[0] for line in found.warnings] == [
        "n.yaml:9 key flags.plugin.deviceListStrategy, n.yaml:8 key flags.plugin.passDeviceSpecs"
    ]


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_each_mig_strategy_of_the_documentation_is_taken(strategy: str) -> None:
    found = resolve(f"version: v1\nflags:\n  migStrategy: {strategy}\n")
    assert found.settings.mig_strategy == strategy


def test_mps_of_the_documentation_is_refused() -> None:
    text = (
        "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 10}"
    )
    with pytest.raises(InputError) as raised:
        resolve(text)
    assert str(raised.value) == (
        "n.yaml:4:5: sharing.mps: MPS is not supported — use sharing.timeSlicing, or leave these "
        "nodes to NVIDIA's device plugin"
    )


@pytest.mark.parametrize(
    "text",
    [
        "version: v1",
        "flags: {}",
        "sharing:",
        "version: ''",
        "version: null",
        "Version: v1\nimex: {}",
    ],
)
def test_a_file_of_nvidias_is_known_by_its_sections(text: str) -> None:
    assert resolve(text).warnings == (f"{STRATEGY}, where NVIDIA's device plugin takes envvar",)


def test_keys_count_in_any_case_where_nvidias_is_read_as_json() -> None:
    assert resolve("Flags: {MIGSTRATEGY: single}").settings.mig_strategy == "single"


def test_a_list_of_strategies_is_taken_and_a_repeated_one_once() -> None:
    text = "flags: {plugin: {deviceListStrategy: [envvar, cdi-cri, envvar]}}"
    assert resolve(text).settings.device_list_strategy == ("envvar", "cdi-cri")


def test_numbers_and_switches_are_texts_where_texts_are_meant() -> None:
    assert resolve("flags: {nvidiaDevRoot: /5}").settings.dev_root == Path("/5")
    with pytest.raises(InputError, match=r"'5' is relative"):
        resolve("flags: {nvidiaDevRoot: 5}")
    with pytest.raises(InputError, match=r"no is not one of none, single, mixed"):
        resolve("flags: {migStrategy: no}")


def test_resources_keep_their_names_and_that_is_said() -> None:
    text = "version: v1\nresources: {gpus: [{pattern: '*A100*', name: a100}], mig: []}"
    assert said(text) == (
        "n.yaml:2 key resources.gpus has no effect: resources keep their names, as with NVIDIA's "
        "device plugin"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: v1\ncolour: red", "n.yaml:2:9: colour: unknown key, ignored"),
        ("version: v1\nflagz: {}", "did you mean 'flags'?"),
        ("flags: {migStrategyy: single}", "did you mean 'migStrategy'?"),
        ("flags: {plugin: {a: 1}}", "flags.plugin.a: unknown key"),
        (
            "flags: {migStrategy: none, migStrategy: single}",
            "'migStrategy' replaces that of line 1",
        ),
        ("version: v1\nscan-interval: 5", "scan-interval: unknown key, ignored"),
        ("flags: {failOnInitError: true}", "keeps running without GPUs"),
        ("flags: {plugin: {deviceIDStrategy: index}}", "devices are named by UUID"),
        ("flags: {useNodeFeatureAPI: true}", "written to the Node itself"),
        ("flags: {gfd: {oneshot: true}}", "(scan-interval)"),
        ("flags: {gfd: {noTimestamp: false}}", "no label contains a timestamp"),
        ("flags: {gfd: {sleepInterval: 60s}}", "(scan-interval)"),
        ("flags: {gfd: {sleepInterval: 60}}", "(scan-interval)"),
        ("flags: {gfd: {sleepInterval: infinite}}", "(scan-interval)"),
        ("flags: {gfd: {outputFile: /x}}", "written to the Node itself"),
        ("flags: {gfd: {machineTypeFile: /x}}", "comes from the DMI tables"),
        (
            "flags: {plugin: {passDeviceSpecs: true, deviceListStrategy: cdi-cri}}",
            "CDI brings the device nodes itself",
        ),
        ("flags: {plugin: {sharedDevicesAllocationPolicy: packed}}", "nothing is shared"),
        ("flags: {plugin: {containerDriverRoot: /none}}", "no libnvidia-ml.so.1 below /none"),
    ],
)
def test_what_has_no_effect_is_said_once(text: str, words: str) -> None:
    found = said(text)
    assert words in found
    assert "\n" not in found


@pytest.mark.parametrize(
    "text",
    [
        "flags: {failOnInitError: false, gdrcopyEnabled: false, gdsEnabled: false}",
        "flags: {mofedEnabled: false, useNodeFeatureAPI: false, mpsRoot: /run/nvidia/mps}",
        "flags: {deviceDiscoveryStrategy: nvml, plugin: {deviceIDStrategy: uuid}}",
        "flags: {plugin: {cdiAnnotationPrefix: cdi.k8s.io/, nvidiaCTKPath: /usr/bin/nvidia-ctk}}",
        "flags: {gfd: {oneshot: false, noTimestamp: true}, plugin: {passDeviceSpecs: false}}",
        "flags: {migStrategy: null, plugin: null}\nimex: {channelIDs: [], required: true}",
        "flags: {plugin: {containerDriverRoot: /}}\nsharing: {mps: null}",
        "resources: {gpus: []}",
    ],
)
def test_what_asks_for_what_happens_needs_no_remark(text: str) -> None:
    assert said(text) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: v2", "n.yaml:1:10: version: unknown version 'v2' — write `version: v1`"),
        ("version: 1", "unknown version 1"),
        ("version: [v1]", "version: expected one value, found the list [v1]"),
        ("flags: 5", "n.yaml:1:8: flags: expected a mapping, found 5"),
        ("flags: {migStrategy: singel}", "flags.migStrategy: the text 'singel' is not one of"),
        ("flags: {migStrategy: singel}", "did you mean 'single'?"),
        ("flags: {migStrategy: [single]}", "expected one value, found the list [single]"),
        (
            "flags: {failOnInitError: 'true'}",
            "expected true or false, without quotes, found the text",
        ),
        ("flags: {failOnInitError: 1}", "expected true or false, without quotes, found 1"),
        ("flags: {plugin: {deviceListStrategy: 5}}", "expected a text, found 5"),
        ("flags: {plugin: {deviceListStrategy: []}}", "the list [] is without one of envvar"),
        (
            "flags: {plugin: {deviceListStrategy: [envvar, envar]}}",
            "deviceListStrategy[1]: the text",
        ),
        ("flags: {plugin: {deviceListStrategy: 'envvar,cdi-cri'}}", "is not one of envvar"),
        ("flags: {plugin: {deviceListStrategy: device-specs}}", "it is pass-device-specs there"),
        ("flags: {plugin: {deviceListStrategy: ''}}", "the text '' is not one of"),
        ("flags: {plugin: {deviceIDStrategy: name}}", "not one of uuid, index"),
        ("flags: {plugin: {sharedDevicesAllocationPolicy: x}}", "not one of distributed, packed"),
        ("flags: {deviceDiscoveryStrategy: tegra}", "Tegra is not supported"),
        ("flags: {gfd: {sleepInterval: 5x}}", "the text '5x' is not a duration"),
        ("flags: {gfd: {sleepInterval: true}}", "true is not a duration"),
        ("imex: {channelIDs: 0}", "imex.channelIDs: expected a list, found 0"),
        ("imex: {channelIDs: [2]}", "neither empty nor channel 0 alone"),
        ("imex: {channelIDs: [0, 0]}", "neither empty nor channel 0 alone"),
        ("flags: {plugin: {cdiAnnotationPrefix: a b}}", "is not the beginning of an annotation"),
        ("flags: {plugin: {nvidiaCTKPath: bin/ctk}}", "'bin/ctk' is relative"),
        ("resources: {gpus: [{name: a}]}", "resources.gpus[0]: no `pattern` is set"),
        ("resources: {mig: [{pattern: a}]}", "resources.mig[0]: no `name` is set"),
        ("resources: {gpus: [{pattern: 5, name: a}]}", "expected a text, found 5"),
        ("resources: {gpus: [{pattern: a, name: A100}]}", "a name of lower-case letters"),
        ("resources: {gpus: {a: b}}", "expected a list, found a mapping"),
        ("nodetopo: {scan_interval: 5}", "nodetopo.scan_interval: unknown key — did you mean"),
        ("nodetopo: [5]", "nodetopo: expected a mapping, found the list [5]"),
    ],
)
def test_what_nvidias_refuses_is_refused_at_its_place(text: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve(text)
    assert words in str(raised.value)
    assert raised.value.cure


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("flags: {gdrcopyEnabled: true}", "gdrcopy", True),
        ("flags: {gdsEnabled: true}", "gds", True),
        ("flags: {mofedEnabled: true}", "mofed", True),
        ("flags: {mofedEnabled: false}", "mofed", False),
        ("flags: {plugin: {cdiAnnotationPrefix: a.b/}}", "cdi_annotation_prefix", "a.b/"),
        ("flags: {plugin: {nvidiaCTKPath: /x/ctk}}", "cdi_hook", Path("/x/ctk")),
        ("flags: {nvidiaDriverRoot: /run/driver}", "driver_root", Path("/run/driver")),
        ("imex: {channelIDs: [0]}", "imex_channels", (0,)),
        ("imex: {channelIDs: []}", "imex_channels", ()),
        ("imex: {channelIDs: [0], required: true}", "imex_required", True),
    ],
)
def test_what_containers_are_given_besides_is_taken_as_it_is(
    text: str, field: str, value: object
) -> None:
    found = resolve(text)
    assert getattr(found.settings, field) == value
    assert found.origins[field].startswith("n.yaml:1 key ")
    assert said(text) == ""


def test_our_settings_stand_below_a_key_of_ours() -> None:
    found = resolve(f"{SHARED}nodetopo: {{scan-interval: 5, placement-policy: {{'*': packed}}}}")
    assert found.settings.scan_interval_s == 5
    assert found.origins["scan_interval_s"] == "n.yaml:3 key nodetopo.scan-interval"
    assert found.settings.time_slicing == TimeSlicing(replicas={"nvidia.com/gpu": 4})
    assert found.warnings == (f"{STRATEGY}, where NVIDIA's device plugin takes envvar",)


def test_the_key_of_ours_may_be_empty() -> None:
    assert resolve(f"{SHARED}nodetopo:\n").settings.scan_interval_s == 60
