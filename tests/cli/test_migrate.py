"""`nodetopo migrate`: outputs, exit statuses, files and directories."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from nodetopo.cli.migrate import MAX_FILES
from nodetopo.tools.migrate.findings import Verdict
from tests.cli.conftest import Cli
from tests.tools.migrate.documents import RDMA_CONFIG, pod

SAME = (
    "version: v1\nflags:\n  plugin:\n    deviceListStrategy: [envvar]\n    deviceIDStrategy: uuid\n"
)
DIFFERENT = SAME.replace("uuid", "index")
UNKNOWN = SAME.replace("deviceIDStrategy", "deviceIdStrategie")
SCHEMA = Path(__file__).parents[2] / "docs/reference/schema/migrate.json"


@pytest.mark.parametrize(
    ("text", "code"), [(SAME, 0), (DIFFERENT, 1), (UNKNOWN, 3), (UNKNOWN + "imex: 1\n", 1)]
)
def test_the_exit_status_says_whether_something_is_lost(cli: Cli, text: str, code: int) -> None:
    assert cli("migrate", "--check", "-", stdin=text).code == code


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "error: -: not YAML"),
        ("a: {{ .Values.a }}", "helm template … | nodetopo migrate --check -"),
        ("", "error: nothing to judge"),
    ],
)
def test_what_cannot_be_judged_is_bad_input(cli: Cli, text: str, says: str) -> None:
    done = cli("migrate", "--check", "-", stdin=text)
    assert done.code == 2
    assert says in done.err
    assert done.out == ""


def test_the_table_has_the_line_the_verdict_and_a_summary(cli: Cli) -> None:
    done = cli("migrate", "--check", "-", stdin=DIFFERENT)
    rows = done.out.splitlines()
    assert rows[0].split()[:3] == ["LINE", "VERDICT", "WRITTEN"]
    assert rows[3].startswith("-:5   differs  flags.plugin.deviceIDStrategy: index")
    assert rows[-1] == "2 same, 1 differs"


def test_the_short_output_leaves_out_what_needs_nothing(cli: Cli) -> None:
    lines = cli("migrate", "--check", "-", "-o", "short", stdin=DIFFERENT).out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("-:5: differs: flags.plugin.deviceIDStrategy: index: ")


@pytest.mark.parametrize("text", [SAME, DIFFERENT, UNKNOWN, RDMA_CONFIG, pod(args=["--x"])])
def test_json_and_yaml_are_what_the_schema_promises(cli: Cli, text: str) -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    plain = json.loads(cli("migrate", "--check", "-", "-o", "json", stdin=text).out)
    Draft202012Validator(schema).validate(plain)
    assert yaml.safe_load(cli("migrate", "--check", "-", "-o", "yaml", stdin=text).out) == plain
    assert sum(plain["summary"].values()) == len(plain["findings"])


def test_the_schema_has_every_verdict() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    assert schema["$defs"]["verdict"]["enum"] == [verdict.value for verdict in Verdict]


def test_the_printed_configuration_is_one_that_the_daemon_takes(cli: Cli, tmp_path: Path) -> None:
    done = cli("migrate", "-", "-o", "config", stdin=pod(env={"MIG_STRATEGY": "mixed"}))
    config = tmp_path / "config.yaml"
    config.write_text(done.out)
    printed = cli("run", "--print-config", "--config", str(config)).out
    row = next(line for line in printed.splitlines() if line.startswith("mig-strategy "))
    assert row.split()[1] == "mixed"


def test_directories_are_read_in_order_and_links_are_not_followed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(SAME)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.json").write_text(RDMA_CONFIG)
    (tmp_path / "notes.txt").write_text("a: [")
    (tmp_path / "link.yaml").symlink_to("/etc/passwd")
    plain = json.loads(cli("migrate", str(tmp_path), "-o", "json").out)
    files = list(dict.fromkeys(it["file"] for it in plain["findings"]))
    assert files == [str(tmp_path / "a" / "config.json"), str(tmp_path / "b.yaml")]


def test_a_directory_without_files_or_with_too_many_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    assert "has no file that ends with" in cli("migrate", str(tmp_path)).err
    for number in range(MAX_FILES + 1):
        (tmp_path / f"{number}.yaml").touch()
    done = cli("migrate", str(tmp_path))
    assert (done.code, f"more than {MAX_FILES} files" in done.err) == (2, True)


def test_an_overlay_is_written_whole_into_a_new_directory(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    done = cli("migrate", "-", "--write", str(target), "-o", "short", stdin=SAME)
    assert done.code == 0
    assert "kubectl apply -k" in done.err
    assert sorted(it.name for it in target.iterdir()) == ["configs.yaml", "kustomization.yaml"]
    again = cli("migrate", "-", "--write", str(target), stdin=SAME)
    assert (again.code, "is not empty" in again.err, again.out) == (2, True, "")


def test_names_in_files_do_not_steer_the_terminal(cli: Cli) -> None:
    text = '{"version": "v1", "a\\u001b[31m\\nb": 1}'
    for form in ("table", "short", "json", "yaml"):
        assert "\x1b" not in cli("migrate", "-", "-o", form, stdin=text).out
