"""Which of several configs a node takes: as NVIDIA's config-manager chooses.

Compared with ``cmd/config-manager/main.go`` of k8s-device-plugin v0.19.0, but for what is said
about a label that names no file: there the sidecar ends.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodetopo.errors import InputError
from nodetopo.kernel.settings.declare import key
from nodetopo.kernel.settings.named import Chosen, chosen, listed
from nodetopo.kernel.settings.origin import ConfigFile, SettingSource
from nodetopo.kernel.settings.resolve import CHOOSING, Resolved

LABEL = "nvidia.com/device-plugin.config"
ALL = ("named", "single", "empty")


def choose(
    directory: Path,
    label: str | None = None,
    *,
    default: str | None = None,
    fallbacks: Sequence[str] = ("named", "single"),
) -> Chosen:
    return chosen(
        listed(directory), label=label, label_key=LABEL, default=default, fallbacks=fallbacks
    )


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    for name in ("default", "low.yaml", "high.yml", "mixed.2"):
        (tmp_path / name).touch()
    return tmp_path


def mounted(directory: Path, **files: str) -> Path:
    """Return *directory* as the kubelet mounts a ConfigMap there."""
    version = directory / "..2026_01_01_00_00_00.1"
    version.mkdir()
    (directory / "..data").symlink_to(version.name)
    for name, text in files.items():
        (version / name).write_text(text)
        (directory / name).symlink_to(Path("..data", name))
    return directory


@pytest.mark.parametrize(
    ("label", "file"),
    [
        ("default", "default"),
        ("low", "low.yaml"),
        ("low.yaml", "low.yaml"),
        ("high", "high.yml"),
        ("mixed.2", "mixed.2"),
    ],
)
def test_a_label_names_a_file_with_or_without_its_ending(
    configs: Path, label: str, file: str
) -> None:
    assert choose(configs, label, default="mixed.2") == Chosen(
        name=label, path=configs / file, why=f"label {LABEL}"
    )


def test_the_exact_name_counts_before_an_ending(configs: Path) -> None:
    (configs / "low").touch()
    assert choose(configs, "low").path == configs / "low"
    assert choose(configs, "low.yaml").path == configs / "low.yaml"


@pytest.mark.parametrize("label", [None, ""])
def test_without_a_label_the_default_serves_before_every_fallback(
    configs: Path, label: str | None
) -> None:
    found = choose(configs, label, default="low")
    assert (found.name, found.why, found.problem) == ("low", "default-config", None)


@pytest.mark.parametrize(
    ("files", "fallbacks", "name", "why"),
    [
        (("a", "default"), ("single", "named"), "default", "fallback named"),
        (("a.yaml",), ("named", "single"), "a", "fallback single"),
        (("default",), ("single", "named"), "default", "fallback single"),
        (("a", "b"), ALL, None, "fallback empty"),
        ((), ALL, None, "fallback empty"),
    ],
)
def test_the_first_fallback_that_can_serve_does(
    tmp_path: Path, files: tuple[str, ...], fallbacks: tuple[str, ...], name: str | None, why: str
) -> None:
    for file in files:
        (tmp_path / file).touch()
    found = choose(tmp_path, fallbacks=fallbacks)
    assert (found.name, found.why) == (name, why)
    assert (found.path is None) is (name is None)


def test_a_label_that_names_no_file_leaves_the_choice_to_the_rest_and_is_a_problem(
    configs: Path,
) -> None:
    found = choose(configs, "lowest")
    assert (found.name, found.why) == ("default", "fallback named")
    assert found.problem == (
        f"the label {LABEL} names the config 'lowest', and there is default, high, low, mixed.2"
    )


def test_a_mounted_config_map_shows_its_keys_alone(tmp_path: Path) -> None:
    found = listed(mounted(tmp_path, low="", high=""))
    assert list(found) == ["high", "low"]


def test_a_label_reaches_no_file_outside(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    inside = tmp_path / "configs"
    inside.mkdir()
    assert choose(inside, "../secret", fallbacks=ALL).path is None


@pytest.mark.parametrize(
    ("label", "default", "words"),
    [
        (None, "large", "default-config names 'large', and there is a, b"),
        (None, None, "no fallback of named, single chooses a config, and there is a, b"),
        ("c", None, f"the label {LABEL} names the config 'c', and there is a, b; no fallback of"),
    ],
)
def test_no_config_at_all_is_refused(
    tmp_path: Path, label: str | None, default: str | None, words: str
) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    with pytest.raises(InputError) as raised:
        choose(tmp_path, label, default=default)
    assert words in str(raised.value)
    assert raised.value.cure


def test_a_directory_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read the configs in .*No such file"):
        choose(tmp_path / "none")


def test_of_many_configs_ten_are_named(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"c{number:02}").touch()
    problem = choose(tmp_path, "x", fallbacks=("empty",)).problem
    assert problem is not None
    assert problem.endswith("c08, c09 and 2 more")


def resolved(*, file: str, named: str, **more: Any) -> Resolved:
    return Resolved.of(
        flags={},
        environment=more,
        file=ConfigFile(name="f.yaml", text=file),
        named=ConfigFile(name="low", text=named, place=SettingSource.NAMED_FILE),
    )


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("mig-strategy: mixed", "flags: {migStrategy: single}"),
        ("flags: {migStrategy: mixed}", "flags: {migStrategy: single}"),
        ("flags: {migStrategy: mixed}", "mig-strategy: single"),
        ("nodetopo: {mig-strategy: mixed}", "flags: {migStrategy: single}"),
    ],
)
def test_a_named_config_wins_over_the_file_whatever_the_spelling(file: str, named: str) -> None:
    found = resolved(file=file, named=named)
    assert found.settings.mig_strategy == "single"
    assert found.origins["mig_strategy"].startswith("low:1 key ")
    assert not any("wins over" in line for line in found.warnings)


def test_a_variable_wins_over_a_named_config_as_over_any_file() -> None:
    found = resolved(file="", named="flags: {migStrategy: single}", MIG_STRATEGY="mixed")
    assert found.settings.mig_strategy == "mixed"


def test_what_a_named_config_leaves_out_is_as_the_file_has_it() -> None:
    found = resolved(file="scan-interval: 5", named="flags: {migStrategy: single}").settings
    assert (found.scan_interval_s, found.mig_strategy) == (5, "single")


@pytest.mark.parametrize("name", CHOOSING)
def test_a_named_config_cannot_set_what_it_is_chosen_by(name: str) -> None:
    with pytest.raises(InputError, match=f"low:1 key {key(name)}: a named config cannot set"):
        resolved(file="", named=f"{key(name)}: x")
