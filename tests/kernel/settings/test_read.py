"""Every setting changes something: some code reads it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import nodetopo
from nodetopo.deviceplugin.settings import Feature
from nodetopo.kernel.settings.declare import options

PACKAGE = Path(nodetopo.__file__).parent

HOLDERS = {"settings", "wanted"}
"""The names that settings have where they are read."""

BY_NAME = {feature.value for feature in Feature}
"""Settings that are read by getattr."""


def names_read() -> Iterator[str]:
    """Yield the name of each attribute of settings that the package reads."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                holder = ast.unparse(node.value).rpartition(".")[2]
                if holder.lstrip("_") in HOLDERS:
                    yield node.attr


def test_every_setting_is_read() -> None:
    assert sorted({*options()} - {*names_read()} - BY_NAME) == []
