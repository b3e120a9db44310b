"""The chart's page and the schema of its values."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from nodetopo.kernel.settings.declare import default, key, options
from nodetopo.kernel.settings.values import Option, shown
from scripts.generators.chart import BY_THE_CHART, NARROW, OPEN, readme, schema, setting, values


def test_the_values_fulfil_their_schema() -> None:
    jsonschema.validate(values(), schema())


@pytest.mark.parametrize("path", [*OPEN, *NARROW])
def test_every_exception_is_of_a_value_that_exists(path: str) -> None:
    found = values()
    for name in path.split("."):
        found = found[name]


def test_every_value_has_a_description() -> None:
    rows = [line.split(" | ") for line in readme().splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert [row[0] for row in rows if row[-1].strip(" |") == ""] == []


def accepts(form: Mapping[str, Any], value: object) -> bool:
    valid: bool = jsonschema.Draft7Validator(dict(form)).is_valid(value)
    return valid


def reads(option: Option, text: str) -> bool:
    """Return whether the daemon starts with *text* in the variable of *option*."""
    try:
        option.read(text)
    except ValueError:
        return False
    return True


def as_text(value: object) -> str:
    """Return what the chart puts into the variable of a setting for *value*."""
    if isinstance(value, list):
        return ",".join(map(as_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


SETTINGS = {key(name): option for name, option in options().items()}
VALUES: list[Any] = [
    *{word for option in SETTINGS.values() for word in (*option.choices, *option.words)},
    *(shown(default(name)) for name in options() if shown(default(name)) != "none"),
    *("none", "auto", "all", "off", "yes", "0", "1", "8", "2, 4", "300", "mixd", "/a b", "a/b"),
    *(
        "envvar,device-specs",
        "envvar, device-specs",
        "best,nvidia.com/mig-*=packed",
        "a.b/c=packed",
    ),
    *(
        "a.b/c=4",
        "a.b/c=4,renameByDefault",
        "a.b/c=1,d/e=2",
        "79=reboot",
        "13=app,100-199=degraded",
    ),
    *(
        "90s",
        "5m",
        "1.5h",
        "5 minutes",
        "https://10.0.0.7:10250",
        "https://[fe80::1]:10250/",
        "a:1",
    ),
    *(True, False, 0, 8, 0.5, ["ring"], {"a": 1}, None),
]
"""Of every form that some setting takes, and of none."""


@pytest.mark.parametrize("name", SETTINGS)
def test_the_schema_refuses_no_text_that_the_daemon_reads(name: str) -> None:
    texts = [value for value in VALUES if isinstance(value, str)]
    read = [text for text in texts if reads(SETTINGS[name], text)]
    assert read
    assert [text for text in read if not accepts(setting(SETTINGS[name]), text)] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gds", True),
        ("scan-interval", 90),
        ("recovery", 0.5),
        ("expect-gpus", 8),
        ("imex-channels", [0]),
        ("exclude-gpus", [0, "GPU-7"]),
        ("dra-set-sizes", [2, 4]),
        ("device-list-strategy", ["envvar", "device-specs"]),
        ("label-outputs", ["node", "nfd-file"]),
    ],
)
def test_a_value_need_not_be_a_text(name: str, value: object) -> None:
    assert reads(SETTINGS[name], as_text(value))
    assert accepts(setting(SETTINGS[name]), value)


@pytest.mark.parametrize("name", [name for name, option in SETTINGS.items() if option.choices])
def test_the_schema_accepts_the_words_of_a_setting_and_nothing_else(name: str) -> None:
    form, option = setting(SETTINGS[name]), SETTINGS[name]
    assert [value for value in VALUES if accepts(form, value)] == [
        value for value in VALUES if value in option.choices
    ]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("mig-strategy", "mixd"),
        ("topology-levels", False),  # as Helm reads an off without quotes
        ("gds", "maybe"),
        ("scan-interval", "5 minutes"),
        ("scan-interval", 0),
        ("label-prefix", "gpu.topology"),
        ("cdi-spec-dir", "var/run/cdi"),
        ("kubelet-url", "http://10.0.0.7:10250"),
        ("resource-name", "gpu"),
        ("device-list-strategy", "envvar,mounts"),
        ("device-list-strategy", ["mounts"]),
        ("placement-policy", "nvidia.com/gpu=bst"),
        ("time-slicing", "nvidia.com/gpu"),
        ("xid-classes", "79=restart"),
        ("expect-gpus", "eight"),
        ("imex-channels", 1),
        ("job-variables", "NCCL_HCA"),
        ("namespace", "Kube_System"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_refused(name: str, wrong: object) -> None:
    assert not reads(SETTINGS[name], as_text(wrong))
    assert not accepts(setting(SETTINGS[name]), wrong)


def test_every_setting_is_described_as_in_the_help() -> None:
    found = schema()["properties"]["settings"]["properties"]
    assert {name: form["description"] for name, form in found.items()} == {
        name: option.help for name, option in SETTINGS.items() if name not in BY_THE_CHART
    }


def test_a_reader_without_a_schema_is_named() -> None:
    option = replace(SETTINGS["driver-root"], read=as_text)
    with pytest.raises(
        KeyError, match=r"as_text.* has no row in FORMS of scripts\.generators\.chart"
    ):
        setting(option)
