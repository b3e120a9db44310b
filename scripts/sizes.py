"""Compare the sizes of the project with the most that ``pyproject.toml`` allows.

A figure above its limit fails. Where all are within, limits that are too high are lowered to the
figures, so that what a change saves stays saved. Raise a limit by hand, in the commit that needs
it, with the reason.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "agent" / "nodetopo"
PROJECT = ROOT / "pyproject.toml"

TABLE = "tool.nodetopo.sizes"

_ROOTS = re.compile(r"nodetopo\.(kernel\.app|cli\.run|components\.\w+\.(component|settings|terms))")


def main() -> int:
    """Print the figures, and their limits where they differ."""
    parser = argparse.ArgumentParser(prog="scripts/size", description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="lower no limit")
    parser.add_argument("--edges", action="store_true", help="print who imports whom outside")
    args = parser.parse_args()
    modules = Modules()
    if args.edges:
        print("\n".join(modules.edges()))
        return 0
    for folder, (lines, code) in modules.folders.items():
        print(f"{folder:<32}{lines:>8,}{code:>8,}")
    found = figures(modules)
    text = PROJECT.read_text("utf-8")
    limits: Mapping[str, int] = tomllib.loads(text)["tool"]["nodetopo"]["sizes"]
    over = [name for name, figure in found.items() if figure > limits[name]]
    for name, figure in found.items():
        most = limits[name]
        note = "" if figure == most else f"  limit {most:,}"
        print(f"{name:<32}{figure:>8,}{note}")
    if over:
        names = ", ".join(over)
        print(f"FAIL sizes: {names}: remove as much as you add, or raise the limit in [{TABLE}]")
        return 1
    if not args.check:
        for name, figure in found.items():
            text = re.sub(rf"(?m)^{name} = \d+", f"{name} = {figure}", text)
        PROJECT.write_text(text, "utf-8")
    print("PASS sizes: nothing is above its limit")
    return 0


class Modules:
    """The modules of the package, without generated ones."""

    def __init__(self) -> None:
        self.paths = {
            _name(path): path for path in sorted(PACKAGE.rglob("*.py")) if "pb" not in path.parts
        }
        self.texts = {name: path.read_text("utf-8") for name, path in self.paths.items()}
        self.trees = {name: ast.parse(text) for name, text in self.texts.items()}
        self.lines = {name: text.count("\n") for name, text in self.texts.items()}

    @cached_property
    def folders(self) -> Mapping[str, tuple[int, int]]:
        """Lines, and lines of code, by folder."""
        lines, code = Counter[str](), Counter[str]()
        for name, path in self.paths.items():
            parts = path.relative_to(PACKAGE).parts[:-1]
            folder = "/".join(parts[: 2 if parts[:1] == ("components",) else 1]) or "."
            lines[folder] += self.lines[name]
            code[folder] += code_lines(self.texts[name], self.trees[name])
        return {folder: (lines[folder], code[folder]) for folder in sorted(lines)}

    def daemon(self) -> frozenset[str]:
        """Return what the daemon can import: imports inside functions too."""
        seen, waiting = set[str](), [name for name in self.paths if _ROOTS.fullmatch(name)]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += self._imports(name)
        return frozenset(seen)

    def edges(self) -> Iterator[str]:
        """Yield the imports that lead from the daemon to what is made for commands."""
        outside = tuple(f"nodetopo.{room}" for room in ("tools", "admission", "drawing", "cli"))
        for name in sorted(self.daemon()):
            if not name.startswith(outside):
                targets = {it for it in self._imports(name) if it.startswith(outside)}
                yield from (f"{name} -> {target}" for target in sorted(targets))

    def _imports(self, name: str) -> Iterator[str]:
        for node in ast.walk(self.trees[name]):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                wanted = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            yield from (each for each in wanted if each in self.paths)


def figures(modules: Modules) -> Mapping[str, int]:
    """Return the figures that have a limit, by name."""
    trees = modules.trees.values()
    nodes = [node for tree in trees for node in ast.walk(tree)]
    total = sum(modules.lines.values())
    tests = sorted((ROOT / "tests").rglob("*.py"))
    scripts = [path for path in (ROOT / "scripts").rglob("*") if _is_script(path)]
    return {
        "package-lines": total,
        "package-code": sum(code for _, code in modules.folders.values()),
        "package-modules": sum(path.name != "__init__.py" for path in modules.paths.values()),
        "daemon-lines": sum(modules.lines[name] for name in modules.daemon()),
        "records-built-once": _built_once(nodes),
        "names-per-1000-lines": round(1000 * _names(nodes, modules) / total),
        "test-lines": _lines(tests),
        "test-files": len(tests),
        "script-lines": _lines(scripts),
        "doc-lines": _lines((ROOT / "docs").rglob("*.md")),
    }


def code_lines(text: str, tree: ast.Module) -> int:
    """Return the lines that are neither blank, a comment, nor part of a docstring."""
    described = set[int]()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            described.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in described
        for number, line in enumerate(text.splitlines(), 1)
    )


def _built_once(nodes: list[ast.AST]) -> int:
    """Return how many records are built at one place: they carry data between two others."""
    records = {
        node.name
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and any(
            "dataclass" in ast.unparse(each) or ast.unparse(each) == "Struct"
            for each in (*node.decorator_list, *node.bases)
        )
    }
    built = Counter(
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in nodes
        if isinstance(node, ast.Call)
    )
    return sum(built[name] == 1 for name in records)


def _names(nodes: list[ast.AST], modules: Modules) -> int:
    """Return how many functions, classes and constants have a name."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    constants = (
        target
        for tree in modules.trees.values()
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    )
    return sum(isinstance(node, kinds) for node in nodes) + sum(
        isinstance(target, ast.Name) and target.id.isupper() for target in constants
    )


def _name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
        ".__init__"
    )


def _is_script(path: Path) -> bool:
    return path.is_file() and path.suffix in {"", ".py", ".sh"} and "__pycache__" not in path.parts


def _lines(paths: "Iterator[Path] | list[Path]") -> int:
    return sum(path.read_text("utf-8").count("\n") for path in paths)


if __name__ == "__main__":
    sys.exit(main())
