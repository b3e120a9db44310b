"""Count how many mutants of a module the tests kill: ``python -m tests.mutate MODULE -- TESTS``.

A module's power of tests before and after they are made shorter::

    python -m tests.mutate agent/nodetopo/components/audit/rules/nvlink.py -- tests/rules -k NVL

The checkout does not change: tests import a copy of the package. Mutants turn a comparison around,
swap ``and`` and ``or``, drop a ``not``, a ``yield from`` or a returned value, or swap 0 and 1. A
seed gives the same sample in each run. Survivors are printed with their lines.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def main() -> int:
    """Run the tests on each mutant; 1 if they fail without one."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="tests.mutate", description=__doc__.split(":", 1)[0])
    parser.add_argument("module", type=Path)
    parser.add_argument("--most", type=int, default=30, help="size of the sample")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=300, help="limit of one run of the tests")
    args = parser.parse_args(words[:at])
    package = Path("agent/nodetopo")
    with TemporaryDirectory() as folder:
        root = Path(folder) / package.name
        shutil.copytree(package, root, ignore=shutil.ignore_patterns("__pycache__"))
        target = root / args.module.relative_to(package)
        tree = ast.parse(target.read_text("utf-8"))
        if not passes(folder, words[at + 1 :], args.seconds):
            print("the tests fail without a mutant")
            return 1
        places = [
            (node_at, kind, node.lineno)
            for node_at, node in enumerate(ast.walk(tree))
            for kind in range(len(mutations(node)))
            if hasattr(node, "lineno")
        ]
        sample = list(places)
        random.Random(args.seed).shuffle(sample)
        sample = sorted(sample[: args.most], key=lambda place: place[2])
        killed = 0
        for node_at, kind, line in sample:
            mutant = deepcopy(tree)
            what, change = mutations(list(ast.walk(mutant))[node_at])[kind]
            change()
            target.write_text(ast.unparse(ast.fix_missing_locations(mutant)), "utf-8")
            if passes(folder, words[at + 1 :], args.seconds):
                print(f"survives  {args.module}:{line}  {what}", flush=True)
            else:
                killed += 1
    print(f"{killed} of {len(sample)} mutants killed ({len(places)} places in the module)")
    return 0


def passes(folder: str, tests: list[str], limit_s: float) -> bool:
    """Return whether *tests* pass within *limit_s* seconds on the package in *folder*."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, "-o", f"pythonpath={folder} .", *tests],
            env={**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (0, 5)  # 5: no test was collected


def mutations(node: ast.AST) -> list[tuple[str, Callable[[], None]]]:
    """Return the changes of *node*, each with its name."""
    return list(_mutations(node))


def _mutations(node: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    match node:
        case ast.Compare(ops=[first, *_]) if type(first) in TURNED:
            yield "comparison turned", lambda: node.ops.__setitem__(0, TURNED[type(first)]())
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or swapped", lambda: setattr(node, "op", other)
        case (
            ast.If(test=ast.UnaryOp(op=ast.Not(), operand=operand))
            | ast.IfExp(test=ast.UnaryOp(op=ast.Not(), operand=operand))
            | ast.While(test=ast.UnaryOp(op=ast.Not(), operand=operand))
        ):
            yield "not dropped", lambda: setattr(node, "test", operand)
        case ast.Expr(value=ast.YieldFrom()):
            yield "yield from dropped", lambda: setattr(node, "value", ast.Constant(None))
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield "return None", lambda: setattr(node, "value", ast.Constant(None))
        case ast.Constant(value=int() as number) if type(number) is int and number in (0, 1):
            yield "0/1 exchanged", lambda: setattr(node, "value", 1 - number)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


if __name__ == "__main__":
    sys.exit(main())
