"""``nodetopo run`` with NVIDIA's flags, variables and file."""

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from nodetopo.cli.main import execute, main
from nodetopo.errors import InputError
from nodetopo.kernel.settings.declare import key, options
from nodetopo.kernel.settings.explained import effect
from nodetopo.kernel.settings.nvidia.names import NAMES, NVIDIA_CONFIG_VARIABLE, Name, ValueKind
from tests.kubeapi.fake_watch import FakeWatch, watched

OWN = {key(name) for name in options()}
FLAGS = [(name, flag) for name in NAMES for flag in name.flags if flag not in OWN]
GOOD = {
    ValueKind.SWITCH: "false",
    ValueKind.NUMBERS: "0",
    ValueKind.DURATION: "1m",
    ValueKind.TEXT: "/a/kubelet.sock",
}


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "NODETOPO_CONFIG",
        NVIDIA_CONFIG_VARIABLE,
        *(v for n in NAMES for v in n.variables),
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def _logs_as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()  # the log went to this test's standard error


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of both tables by their first column."""
    capsys.readouterr()
    assert main(["run", "--print-config", *arguments]) == 0
    rows = (re.split("  +", line) for line in capsys.readouterr().out.splitlines())
    return {row[0]: tuple(row[1:]) for row in rows}


@pytest.mark.parametrize(("name", "flag"), FLAGS, ids=[flag for _name, flag in FLAGS])
def test_every_flag_of_nvidias_is_taken(
    capsys: pytest.CaptureFixture[str], name: Name, flag: str
) -> None:
    value = GOOD.get(name.kind) or name.words[1]
    shown = printed(capsys, f"--{flag}={value}")[name.name]
    assert shown == (value, f"flag --{name.name}", effect(name))


def test_a_switch_without_a_value_is_on(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, "--gds-enabled", "--mofed-enabled=0")
    assert (shown["gds-enabled"][0], shown["mofed-enabled"][0]) == ("true", "false")


def test_a_list_may_be_given_flag_by_flag(capsys: pytest.CaptureFixture[str]) -> None:
    strategies = (
        "--dev-root=/d",
        "--device-list-strategy=envvar",
        "--device-list-strategy",
        "cdi-cri",
    )
    shown = printed(capsys, *strategies)
    assert shown["device-list-strategy"][:2] == ("envvar,cdi-cri", "flag --device-list-strategy")
    assert shown["nvidia-dev-root"][:2] == ("/d", "flag --dev-root")
    with pytest.raises(InputError, match="'0,0' is neither empty nor channel 0 alone"):
        run_directly("--imex-channel-ids=0", "--imex-channel-ids=0")


def run_directly(*arguments: str) -> None:
    """Run the command without what turns its errors into a line of text."""
    from nodetopo.cli.main import parser  # noqa: PLC0415 - the rest goes through `main`

    args = parser("run").parse_args(["run", "--print-config", *arguments])
    execute(args)


@pytest.mark.parametrize("how", ["--config", "--config-file", "CONFIG_FILE", "NODETOPO_CONFIG"])
def test_the_file_is_named_by_nvidias_names_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    other, path = tmp_path / "other.yaml", tmp_path / "config.yaml"
    other.write_text("version: v1\nflags: {migStrategy: single}", encoding="utf-8")
    path.write_text("version: v1\nflags: {migStrategy: mixed}", encoding="utf-8")
    if how != "CONFIG_FILE":
        monkeypatch.setenv("CONFIG_FILE", str(other))
    if how.startswith("-"):
        monkeypatch.setenv("NODETOPO_CONFIG", str(other))
        shown = printed(capsys, how, str(path))
    else:
        monkeypatch.setenv(how, str(path))
        shown = printed(capsys)
    origin = f"{path}:2 key flags.migStrategy"
    assert shown["mig-strategy"] == ("mixed", origin, "sets mig-strategy")


def test_both_tables_name_what_goes_together(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "--print-config"])
    ours, theirs, _hand_over = capsys.readouterr().out.split("\n\n")
    assert re.search(r"^dev-root +none +default +nvidia-dev-root$", ours, re.MULTILINE)
    assert re.search(r"^numa-mode +numa +default +-$", ours, re.MULTILINE)
    assert re.search(r"^nvidia-dev-root +- +not set +sets dev-root$", theirs, re.MULTILINE)
    assert re.search(
        r"^sharing\.mps +- +not set +refused: MPS is not supported$", theirs, re.MULTILINE
    )
    assert len(theirs.splitlines()) == len(NAMES) + 1


def test_warnings_are_printed_with_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "--print-config", "--output-file=/x"])
    assert (
        "warning: flag --output-file has no effect: labels are written to the Node itself\n"
    ) in capsys.readouterr().err


@pytest.mark.usefixtures("_logs_as_before")
def test_the_daemon_logs_the_warnings_as_it_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODETOPO_LOG_FORMAT", "json")
    assert main(["run", "--output-file=/x", "--bandwidth-table=/none"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert '"about": "flag --output-file has no effect: labels are written' in lines[0]
    assert '"level": "warning"' in lines[0]


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    directory = tmp_path / "configs"
    directory.mkdir()
    for name in ("single", "mixed"):
        text = f"version: v1\nflags: {{migStrategy: {name}}}"
        (directory / name).write_text(text, encoding="utf-8")
    return directory


@pytest.mark.usefixtures("_logs_as_before")
def test_the_named_config_of_the_node_is_printed_with_what_chose_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, configs: Path
) -> None:
    api = FakeWatch(labels={"nvidia.com/device-plugin.config": "mixed"})
    with watched(api, tmp_path) as kubeconfig:
        flags = ("--node-name=gpu-1", f"--kubeconfig={kubeconfig}", f"--config-dir={configs}")
        shown = printed(capsys, *flags)
        main(["run", "--print-config", *flags])
    origin = f"{configs}/mixed:2 key flags.migStrategy"
    assert shown["mig-strategy"] == ("mixed", origin, "sets mig-strategy")
    found = capsys.readouterr()
    first = found.out.splitlines()[0]
    assert first == "named config: mixed, by label nvidia.com/device-plugin.config"
    assert "named config" not in found.err


@pytest.mark.usefixtures("_logs_as_before")
def test_a_named_config_that_no_label_chose_is_printed_with_the_reason(
    capsys: pytest.CaptureFixture[str], configs: Path
) -> None:
    main(["run", "--print-config", f"--config-dir={configs}", "--default-config=single"])
    found = capsys.readouterr()
    assert found.out.startswith("named config: single, by default-config\nSETTING ")
    assert "warning: named config: no API server is known\n" in found.err


def test_no_named_config_is_printed_where_none_is_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["run", "--print-config"])
    assert capsys.readouterr().out.startswith("SETTING ")


@pytest.mark.usefixtures("_logs_as_before")
def test_a_file_from_a_pipe_is_read_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "version: v1\nflags: {migStrategy: mixed}"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    monkeypatch.setenv("NODETOPO_CONFIG_FALLBACKS", "empty")
    shown = printed(capsys, "--config=-", "--config-dir=/usr")
    assert shown["mig-strategy"][0] == "mixed"


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        (("-mig-strategy=mixed",), "mig-strategy", "mixed"),
        (("-mig-strategy", "mixed"), "mig-strategy", "mixed"),
        (("-gds-enabled",), "gds-enabled", "true"),
        (("-imex-required=true",), "imex-required", "true"),
        (("--imex-required=true",), "imex-required", "true"),
        (("--imex-required",), "imex-required", "true"),
        (("-gds-enabled=false",), "gds-enabled", "false"),
        (
            ("-device-list-strategy=envvar", "-device-list-strategy", "cdi-cri"),
            "device-list-strategy",
            "envvar,cdi-cri",
        ),
        (("-driver-root=/d",), "nvidia-driver-root", "/d"),
        (("-nvidia-driver-root=/d",), "nvidia-driver-root", "/d"),
        (("-kubelet-socket=/a/kubelet.sock",), "kubelet-socket", "/a/kubelet.sock"),
    ],
)
def test_flags_are_spelled_as_gos_are(
    capsys: pytest.CaptureFixture[str], given: tuple[str, ...], name: str, value: str
) -> None:
    shown = printed(capsys, *given)
    assert shown[name][0] == value
    assert shown[name][1].startswith("flag --")


def test_one_dash_does_for_the_file_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("flags: {migStrategy: mixed}", encoding="utf-8")
    assert printed(capsys, f"-config-file={path}")["mig-strategy"][0] == "mixed"


def test_flags_with_one_dash_are_not_in_the_way_of_readers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--help"]) == 0
    found = capsys.readouterr().out
    assert not [flag for name in NAMES for flag in name.flags if f" -{flag}" in found]


def test_a_refusal_ends_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("sharing: {mps: {}}", encoding="utf-8")
    assert main(["run", "--print-config", "--config", str(path)]) == 2
    assert "sharing.mps: MPS is not supported" in capsys.readouterr().err


def test_the_help_has_the_words_of_a_setting_and_its_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--help"]) == 0
    found = " ".join(capsys.readouterr().out.split())
    assert "how MIG devices are advertised: none, single, mixed (default: none)" in found
    assert "such as 90, 90s or 5m; at least 1 s (default: 60 s)" in found


def test_how_devices_would_be_handed_over_here_is_printed_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "etc/nvidia-container-runtime/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("accept-nvidia-visible-devices-as-volume-mounts = true\n")
    asked = ["run", "--print-config", f"--host-root={tmp_path}"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "hand-over here: volume-mounts, as no directory of CDI specifications" in said
    assert main([*asked, "--device-list-strategy=envvar"]) == 0
    assert "hand-over here" not in capsys.readouterr().out
