"""What surrounds the fuzzer by coverage, which itself is not installed here."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.batch import CORPUS
from tests.fuzz.guided import MISSING, document, prepare, target
from tests.fuzz.readers import READERS
from tests.fuzz.seeds import seeds


def test_without_atheris_it_says_how_to_get_it() -> None:
    """The import is blocked, so that it holds in an environment that has it as well."""
    script = (
        "import sys; sys.modules['atheris'] = None\n"
        "from tests.fuzz.guided import main; main(['json'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (1, f"error: {MISSING}\n")


def test_it_starts_from_the_sound_and_the_kept_documents(tmp_path: Path) -> None:
    prepare(tmp_path, "snapshot", seeds("snapshot"), CORPUS)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"sound-0", "kept-empty-hops.json"} <= names
    read = target("snapshot", READERS["snapshot"])
    for path in tmp_path.iterdir():
        read(path.read_bytes())


def test_what_is_no_utf_8_is_a_document_too() -> None:
    target("json", READERS["json"])(b"\xff\xfe{")
    assert document("json", b"a\xff") == "a\udcff"
    assert document("http", b"a\xff") == "a\xff"


def test_a_reader_that_fails_is_a_find() -> None:
    def broken(text: str) -> bool:
        raise KeyError(text)

    with pytest.raises(KeyError):
        target("json", broken)(b"x")
