"""The command ``scripts/generate``."""

import argparse
import sys
from collections.abc import Sequence

from scripts.generators.registry import GENERATORS, LAB, changes


def main(argv: Sequence[str] | None = None) -> int:
    """Run the generators; 1 if ``--check`` found a stale file."""
    parser = argparse.ArgumentParser(
        prog="scripts/generate", description="Regenerate the committed files made from others."
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"only these: {', '.join(GENERATORS)}; {', '.join(LAB)} needs the lab",
    )
    parser.add_argument("--check", action="store_true", help="list stale files, change nothing")
    args = parser.parse_args(argv)
    names = (*GENERATORS, *LAB)
    if unknown := [name for name in args.names if name not in names]:
        parser.error(f"unknown generator {', '.join(unknown)}; try {', '.join(names)}")
    stale = 0
    for name in args.names or GENERATORS:
        for change in changes(name):
            print(f"{name}: {change}", flush=True)
            stale += 1
            if not args.check:
                change.apply()
    print(f"{stale} stale files" if args.check else f"{stale} files changed")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
