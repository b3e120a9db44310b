"""The named config of a node, which its label or its ConfigMap changes while the daemon runs."""

import time
from pathlib import Path
from typing import Any

import pytest

from nodetopo.errors import InputError
from nodetopo.kernel.settings import reload
from nodetopo.kernel.settings.node_config import SeenLabel
from tests.deviceplugin.eventually import eventually
from tests.kernel.settings.reloaders import Running, running, write
from tests.kubeapi.fake_watch import FakeWatch, watched

LABEL = "nvidia.com/device-plugin.config"


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the label for as long as a busy machine takes to load the client."""
    monkeypatch.setattr(reload, "LABEL_WAIT_S", 60.0)


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    directory = tmp_path / "configs"
    directory.mkdir()
    for name in ("none", "single", "mixed"):
        write(directory / name, f"version: v1\nflags: {{migStrategy: {name}}}")
    write(directory / "default", "version: v1\nflags: {migStrategy: none}")
    return directory


def mounted(parent: Path, **texts: str) -> Path:
    """Return a directory that looks as the kubelet mounts a ConfigMap."""
    directory = parent / "mounted"
    directory.mkdir()
    swap(directory, **texts)
    for name in texts:
        (directory / name).symlink_to(Path("..data", name))
    return directory


def swap(directory: Path, **texts: str) -> None:
    """Replace what is mounted as the kubelet does: ``..data`` becomes a link to another place."""
    version = directory / f"..{time.monotonic_ns()}"
    version.mkdir()
    for name, text in texts.items():
        (version / name).write_text(text, encoding="utf-8")
    link = directory / "..data_tmp"
    link.symlink_to(version.name)
    link.replace(directory / "..data")


def test_a_config_map_that_changes_is_read_again(tmp_path: Path) -> None:
    directory = mounted(tmp_path, default="mig-strategy: single")
    with running(flags={"config_dir": str(directory)}) as it:
        assert it.mig == "single"
        swap(directory, default="mig-strategy: mixed")
        assert it.poll(looks=3) == 1
        assert it.mig == "mixed"


def test_without_an_api_server_the_default_serves(configs: Path) -> None:
    flags = {"config_dir": str(configs), "default_config": "mixed"}
    with running(flags=flags) as it:
        assert it.reloader.config is not None
        assert (it.reloader.config.name, it.reloader.config.why) == ("mixed", "default-config")
        assert it.mig == "mixed"
        assert it.reloader.label_problem == "no API server is known"


def test_a_node_without_any_config_to_take_does_not_start(configs: Path) -> None:
    (configs / "default").unlink()
    with pytest.raises(InputError, match="no fallback of named, single chooses a config"):
        running(flags={"config_dir": str(configs)}).__enter__()


@pytest.fixture
def api() -> FakeWatch:
    found = FakeWatch()
    found.labels = {LABEL: "single"}
    return found


def by_label(configs: Path, kubeconfig: Path, **flags: Any) -> Any:
    return running(flags={"config_dir": str(configs), "kubeconfig": str(kubeconfig), **flags})


def relabel(api: FakeWatch, value: str | None, it: Running) -> None:
    """Give the Node another label, and wait until that is news."""
    news: list[bool] = []
    it.reloader.on_news = lambda: news.append(True)
    api.label(**({} if value is None else {LABEL: value}))
    assert eventually(lambda: it.reloader.label == SeenLabel(value))
    assert eventually(lambda: bool(news))


def test_the_label_is_known_before_anything_is_in_force(
    api: FakeWatch, configs: Path, tmp_path: Path
) -> None:
    with watched(api, tmp_path) as kubeconfig, by_label(configs, kubeconfig) as it:
        assert it.mig == "single"
        assert it.reloader.config.why == f"label {LABEL}"
        assert it.reloader.label_problem is None
        assert it.poll(looks=3) == 0


def test_a_label_that_changes_changes_the_settings_at_the_next_poll(
    api: FakeWatch, configs: Path, tmp_path: Path
) -> None:
    with watched(api, tmp_path) as kubeconfig, by_label(configs, kubeconfig) as it:
        relabel(api, "mixed", it)
        assert it.poll() == 1
        assert (it.mig, it.reloader.config.name) == ("mixed", "mixed")
        assert it.told() == [
            ("ConfigChanged", "configuration mixed is active; changed: mig-strategy", False)
        ]
        relabel(api, None, it)
        assert it.poll() == 1
        assert (it.mig, it.reloader.config.why) == ("none", "fallback named")


def test_a_label_that_names_no_config_keeps_the_current_one_and_is_reported(
    api: FakeWatch, configs: Path, tmp_path: Path
) -> None:
    with watched(api, tmp_path) as kubeconfig, by_label(configs, kubeconfig) as it:
        relabel(api, "mixd", it)
        it.poll()
        assert (it.mig, it.reloader.config.name) == ("single", "single")
        said = (
            f"the label {LABEL} names the config 'mixd', and there is default, mixed, none, single"
        )
        kept = f"single stays active, by label {LABEL}"
        assert it.told() == [("ConfigRefused", f"{said}; {kept}", True)]
        assert it.reloader.failures == 1
        write(configs / "single", "flags: {migStrategy: single}\nnodetopo: {scan-interval: 7}")
        assert it.poll(looks=3) == 1
        assert it.reloader.current.settings.scan_interval_s == 7
        assert [reason for reason, _message, _weight in it.told()] == ["ConfigChanged"]
        write(configs / "mixd", "flags: {migStrategy: mixed}")
        assert it.poll(looks=3) == 1
        assert (it.mig, it.reloader.config.name) == ("mixed", "mixd")


def test_a_label_that_names_no_config_at_the_start_is_told_and_the_default_serves(
    api: FakeWatch, configs: Path, tmp_path: Path
) -> None:
    api.labels = {LABEL: "gone"}
    with watched(api, tmp_path) as kubeconfig, by_label(configs, kubeconfig) as it:
        assert (it.mig, it.reloader.config.name) == ("none", "default")
        (told,) = it.told()
        assert (told[0], told[2]) == ("ConfigRefused", True)
        assert "names the config 'gone'" in told[1]
        assert "default stays active, by fallback named" in told[1]


def test_the_config_in_force_stays_though_its_file_is_gone(
    api: FakeWatch, configs: Path, tmp_path: Path
) -> None:
    with watched(api, tmp_path) as kubeconfig, by_label(configs, kubeconfig) as it:
        (configs / "single").unlink()
        assert it.poll(looks=3) == 0
        assert it.mig == "single"
        assert it.told()[0][0] == "ConfigRefused"


def test_without_the_api_server_the_default_serves_until_the_label_is_known(
    api: FakeWatch, configs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "LABEL_WAIT_S", 0.2)
    api.refuse_with = (503, {})
    with watched(api, tmp_path) as kubeconfig, by_label(configs, kubeconfig) as it:
        assert it.mig == "none"
        assert eventually(lambda: "failed with 503" in str(it.reloader.label_problem))
        api.refuse_with = None
        assert eventually(lambda: it.poll() == 1)
        assert it.mig == "single"


def test_closing_ends_the_watch(api: FakeWatch, configs: Path, tmp_path: Path) -> None:
    with watched(api, tmp_path) as kubeconfig:
        with by_label(configs, kubeconfig):
            assert api.open == 1
        assert eventually(lambda: api.open == 0)


def test_the_label_is_followed_without_polling(
    api: FakeWatch, configs: Path, tmp_path: Path
) -> None:
    with watched(api, tmp_path) as kubeconfig, by_label(configs, kubeconfig) as it:
        it.poll(looks=20)
        assert len(api.queries) == 1
