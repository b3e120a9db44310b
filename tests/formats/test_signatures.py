"""Files are known by their text, wherever they are given."""

from pathlib import Path

import pytest

from nodetopo.formats.signatures import FORMS, LOOKED_AT, Reader, log_form, other_form
from tests.formats.forms import BYTES, EXAMPLES


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_text_is_named_for_every_reader_that_does_not_take_it(name: str) -> None:
    example = EXAMPLES[name]
    for reader in Reader:
        form = other_form(example.text, reader)
        if form is None:
            assert reader in example.readers
        else:
            assert (example.what in form.what, example.cure in form.cure) == (True, True), form


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize(
    "lead", ["\ufeff", "\n\n  ", "> ", "```\n"], ids=["mark", "blank", "quote", "fence"]
)
def test_a_text_is_known_behind(name: str, lead: str) -> None:
    text = EXAMPLES[name].text
    wrapped = text.replace("\n", "\n> ") if lead == "> " else text
    assert other_form(lead + wrapped, None) == other_form(text, None)


def test_every_form_has_an_example() -> None:
    texts = [example.text for example in EXAMPLES.values()]
    texts += [content.decode("latin-1") for content, _, _ in BYTES.values()]
    unseen = [form.what for form in FORMS if not any(map(form.is_in, texts))]
    assert unseen == ["a dump of `rdma_topo`"]  # tests/cli/topo/test_complexes.py has one


def test_every_form_tells_who_reads_it_or_why_nobody_does() -> None:
    assert [form.what for form in FORMS if not form.cure] == []


@pytest.mark.parametrize("text", ["", "<", "<!--", "hello\n", "{}", "[1]", "a: 1\n"])
def test_other_texts_are_not_named(text: str) -> None:
    assert other_form(text, Reader.SNAPSHOT) is None


def test_a_text_that_holds_what_its_reader_takes_keeps_the_readers_error() -> None:
    matrix, log = EXAMPLES["topo -m"].text, EXAMPLES["nccl-tests"].text
    for text in (matrix + log, log + matrix):
        assert [other_form(text, reader) for reader in (Reader.TOPO_M, Reader.LOG)] == [None, None]
    p2p = matrix + EXAMPLES["topo -p2p"].text
    assert other_form(p2p, Reader.TOPO_M) is None


def test_a_result_is_found_wherever_it_stands_in_a_log() -> None:
    log = EXAMPLES["nccl info"].text * (2 * LOOKED_AT // 60) + EXAMPLES["nccl-tests"].text
    form = log_form(log)
    assert form is not None
    assert form.what == "a log of nccl-tests"


def test_the_captures_of_other_tools_are_named(corpus: Path) -> None:
    folders = ("smi-xml", "smi-q", "smi-L", "gfd", "kubelet", "ib", "nvlink", "pci")
    files = [path for folder in folders for path in sorted((corpus / folder).iterdir())]
    files += sorted((corpus / "hwloc").glob("*.xml"))
    assert len(files) > 60
    unnamed = [path.name for path in files if other_form(path.read_text("utf-8"), None) is None]
    assert unnamed == []


def test_no_topology_of_the_corpus_is_taken_for_another_file(corpus: Path) -> None:
    matrices = [*(corpus / "topo-m").iterdir()]
    trees = [path for path in (corpus / "nccl-xml").iterdir() if "graph" not in path.name]
    for files, reader in ((matrices, Reader.TOPO_M), (trees, Reader.NCCL_XML)):
        taken = [path.name for path in files if other_form(path.read_text("utf-8"), reader)]
        assert taken == []
