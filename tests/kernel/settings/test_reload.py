"""Settings that change while the daemon runs, and those that cannot."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodetopo.cli.files import read_text
from nodetopo.errors import InputError
from nodetopo.kernel.settings.declare import Settings, key, options
from tests.kernel.settings.reloaders import running, write
from tests.kernel.settings.resolving import resolve


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "config.yaml", "mig-strategy: single")


def test_nothing_is_applied_while_nothing_changes(file: Path) -> None:
    with running(file) as it:
        assert it.mig == "single"
        assert it.poll(looks=5) == 0
        assert it.told() == []


def test_a_changed_file_is_applied_once(file: Path) -> None:
    with running(file) as it:
        write(file, "mig-strategy: mixed")
        assert it.poll(looks=5) == 1
        assert (it.mig, it.applied[0].mig_strategy) == ("mixed", "mixed")
        assert it.told() == [
            ("ConfigChanged", "configuration is active; changed: mig-strategy", False)
        ]


def test_a_file_that_is_still_written_is_left_alone(file: Path) -> None:
    with running(file) as it:
        for step in range(4):
            write(file, f"mig-strategy: mixed\nscan-interval: {step + 10}")
            assert it.poll(looks=1) == 0
        assert it.poll(looks=1) == 1
        assert it.applied[0].scan_interval_s == 13


def test_files_are_looked_at_only_now_and_then(file: Path) -> None:
    with running(file) as it:
        write(file, "mig-strategy: mixed")
        assert sum(it.poll() for _ in range(100)) == 0
        assert it.poll(looks=2) == 1


def test_asking_reads_all_again_at_once_though_no_file_has_changed(file: Path) -> None:
    news: list[str] = []
    with running(file) as it:
        it.reloader.on_news = lambda: news.append("news")
        it.reloader.ask()
        assert news == ["news"]
        assert it.poll() == 1
        assert it.poll() == 0
        assert it.told() == []


def test_an_invalid_file_is_rejected_and_reported_once(file: Path) -> None:
    with capture_logs() as lines, running(file) as it:
        write(file, "mig-strategy: both")
        assert it.poll(looks=6) == 0
        assert it.mig == "single"
        (told,) = it.told()
        assert it.reloader.failures == 1
        write(file, "mig-strategy: mixed")
        assert it.poll(looks=3) == 1
        assert it.mig == "mixed"
    assert (told[0], told[2]) == ("ConfigRefused", True)
    assert "config.yaml:1 key mig-strategy: 'both' is not one of none, single, mixed" in told[1]
    assert [line["event"] for line in lines if line["log_level"] == "error"] == [
        "configuration refused"
    ]


def test_a_refusal_is_reported_once_however_often_it_is_read(file: Path) -> None:
    with running(file) as it:
        write(file, "mig-strategy: both")
        for _again in range(3):
            it.reloader.ask()
            assert it.poll() == 0
        assert (len(it.told()), it.reloader.failures) == (1, 1)
        write(file, "mig-strategy: bath")
        it.reloader.ask()
        assert it.poll() == 0
        assert (len(it.told()), it.reloader.failures) == (1, 2)


@pytest.mark.parametrize("text", ["a: [", "\x00", "unknown: 1", "sharing: {mps: {resources: []}}"])
def test_no_file_however_bad_changes_anything(file: Path, text: str) -> None:
    with running(file) as it:
        write(file, text)
        assert it.poll(looks=3) == 0
        assert (it.mig, it.reloader.failures) == ("single", 1)


def test_a_file_that_is_gone_leaves_what_was_in_force_until_it_is_back(file: Path) -> None:
    with running(file) as it:
        file.unlink()
        assert it.poll(looks=3) == 0
        assert it.told()[0][0] == "ConfigRefused"
        write(file, "mig-strategy: mixed")
        assert it.poll(looks=3) == 1
        assert it.mig == "mixed"


def test_settings_that_cannot_be_applied_are_rejected(file: Path) -> None:
    with running(file) as it:
        it.refusal = InputError("no such table", "name another")
        write(file, "mig-strategy: mixed")
        assert it.poll(looks=3) == 0
        assert it.mig == "single"
        assert it.told() == [("ConfigRefused", "no such table — name another", True)]
        it.refusal = None
        it.reloader.ask()
        assert it.poll() == 1
        assert it.mig == "mixed"


def test_bad_settings_at_the_start_are_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "config.yaml", "mig-strategy: both")
    with pytest.raises(InputError, match="not one of none, single, mixed"), running(path):
        pass


def test_a_setting_that_needs_a_restart_stays_and_is_logged_once(file: Path) -> None:
    with capture_logs() as lines, running(file) as it:
        text = "mig-strategy: mixed\nmetrics-address: 0.0.0.0:1\nnode-name: other\n"
        write(file, text)
        assert it.poll(looks=3) == 1
        write(file, text + "scan-interval: 5")
        assert it.poll(looks=3) == 1
        settings = it.reloader.current.settings
    assert (settings.metrics_address, settings.scan_interval_s) == ("127.0.0.1:9430", 5)
    assert (settings.mig_strategy, settings.node_name) == ("mixed", "gpu-1")
    said = [line["settings"] for line in lines if "starts anew" in line["event"]]
    assert said == [["metrics-address"]]


NEEDS_RESTART = [name for name, setting in options().items() if not setting.is_live]

WORDS = (
    *("true", "false", "none", "all", "7", "127.0.0.1:1", "https://127.0.0.1:1", "/x/y", "x.io/"),
    *("json", "debug", "auto", "file", "watcher", "single", "dgx-h100", "[1, 2]", "{79: app}"),
    *("sets", "gpus", "30s", "nvidia.com/a", "xyz", "node-feature", "off", "never"),
)


def other(name: str) -> str:
    """Return a file's text that changes the setting *name*."""
    usual = resolve().settings
    for word in WORDS:
        text = f"{key(name)}: {word}\n"
        try:
            found = resolve(text).settings
        except InputError:
            continue
        if getattr(found, name) != getattr(usual, name):
            return text
    raise AssertionError(f"no word here changes {key(name)}")


@pytest.mark.parametrize("is_removed", [False, True], ids=["set", "removed"])
@pytest.mark.parametrize("name", NEEDS_RESTART)
def test_no_live_setting_follows_from_one_that_needs_a_restart(
    tmp_path: Path, name: str, is_removed: bool
) -> None:
    file = tmp_path / "config.yaml"
    first, second = "", other(name)
    if is_removed and name != "config_dir":  # which would have to be there at the start
        first, second = second, first
    write(file, first)
    with running(file) as it:
        before = it.reloader.current.settings
        write(file, f"{second}scan-interval: 77s\n")
        assert it.poll(looks=3) == 1
        assert it.applied[0] == it.reloader.current.settings == before.but(scan_interval_s=77.0)


def test_what_needs_a_restart_is_checked_against_what_is_in_force(file: Path) -> None:
    write(file, "dra: true")
    with running(file) as it:
        write(file, "dra: false\ncdi-spec: none")
        assert it.poll(looks=3) == 0
        ((reason, text, is_warning),) = it.told()
        assert (reason, is_warning) == ("ConfigRefused", True)
        assert text.startswith("dra in force until a restart: DRA hands devices over by our CDI")


def test_a_refused_config_is_tried_again_once_its_file_comes(tmp_path: Path, file: Path) -> None:
    table = tmp_path / "table.yaml"
    with running(file) as it:
        it.refusal = InputError("no table")
        write(file, f"mig-strategy: mixed\nbandwidth-table: {table}")
        assert it.poll(looks=5) == 0
        assert it.mig == "single"
        it.refusal = None
        assert it.poll(looks=5) == 0
        write(table, "{}")
        assert it.poll(looks=3) == 1
        assert it.mig == "mixed"
        write(table, "{ }")
        assert it.poll(looks=3) == 1


def test_flags_and_variables_stay_stronger_than_a_changed_file(file: Path) -> None:
    with running(file, environment={"MIG_STRATEGY": "none"}) as it:
        write(file, "mig-strategy: mixed\nscan-interval: 5")
        assert it.poll(looks=3) == 1
        assert (it.mig, it.applied[0].scan_interval_s) == ("none", 5)


def test_a_changed_bandwidth_table_is_applied_though_no_setting_changed(tmp_path: Path) -> None:
    table = write(tmp_path / "table.yaml", "{}")
    with running(flags={"bandwidth_table": str(table)}) as it:
        write(table, "{ }")
        assert it.poll(looks=3) == 1


def test_another_bandwidth_table_is_followed_from_then_on(tmp_path: Path, file: Path) -> None:
    with running(file) as it:
        table = write(tmp_path / "table.yaml", "{}")
        write(file, f"bandwidth-table: {table}")
        assert it.poll(looks=4) == 1
        write(table, "{ }")
        assert it.poll(looks=3) == 1


def test_new_warnings_are_logged_and_old_ones_are_not(file: Path) -> None:
    write(file, "flags: {gfd: {outputFile: /x}}")
    with capture_logs() as lines, running(file) as it:
        write(file, "flags: {gfd: {outputFile: /x}, plugin: {deviceIDStrategy: index}}")
        assert it.poll(looks=3) == 1
    said = [line["about"] for line in lines if line["event"] == "setting"]
    assert any("devices are named by UUID" in text for text in said)
    assert not any(
        "written to the Node itself" in text and ":1 key flags.gfd" not in text for text in said
    )


@pytest.mark.parametrize(
    ("text", "reading"),
    [("mig-strategy: mixed", 1), ("mig-strategy: mixed", 2), ("mig-strategy: both", 1)],
)
def test_a_file_that_is_replaced_while_it_is_read_is_read_again(
    file: Path, text: str, reading: int
) -> None:
    """*reading*: after which reading of the reload it is replaced."""
    readings: list[str] = []

    def read(path: str) -> str:
        readings.append(read_text(path))
        if len(readings) == before + reading:
            write(file, "mig-strategy: none")
        return readings[-1]

    before = 99
    with running(file, read=read) as it:
        before = len(readings)
        write(file, text)
        it.poll(looks=2)
        assert len(readings) > before
        it.poll(looks=3)
        assert it.mig == "none"


def test_a_file_that_is_replaced_while_it_is_applied_is_read_again(file: Path) -> None:
    with running(file) as it:
        apply = it.apply

        def replacing(settings: Settings) -> None:
            apply(settings)
            if settings.mig_strategy == "mixed":
                write(file, "mig-strategy: none")

        it.apply = replacing  # type: ignore[method-assign]
        write(file, "mig-strategy: mixed\nbandwidth-table: /none")
        it.poll(looks=2)
        assert it.mig == "mixed"
        it.poll(looks=3)
        assert it.mig == "none"


def test_a_file_that_is_replaced_at_the_start_is_read_again(file: Path) -> None:
    readings: list[str] = []

    def read(path: str) -> str:
        readings.append(read_text(path))
        write(file, "mig-strategy: none")
        return readings[0]

    with running(file, read=read) as it:
        readings[0] = "mig-strategy: none"
        it.poll(looks=3)
        assert it.mig == "none"
