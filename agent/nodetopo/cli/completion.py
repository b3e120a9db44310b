"""``nodetopo completion``: a shell script generated from the parser.

The bodies of the scripts are stored alongside this module, because building the parser of all
commands imports most of the agent. ``scripts/generate completion`` writes them.
"""

from argparse import Namespace
from pathlib import Path

from nodetopo.cli.output import say

STORED = {
    "bash": Path(__file__).with_suffix(".sh"),
    "zsh": Path(__file__).with_suffix(".sh"),
    "fish": Path(__file__).with_suffix(".fish"),
}
"""The generated bodies; two shells share one."""

_PRELUDE = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n", "fish": ""}

_LOAD = {
    "bash": "source <(nodetopo completion bash)",
    "zsh": "source <(nodetopo completion zsh)  # after compinit",
    "fish": "nodetopo completion fish | source",
}


def run(args: Namespace) -> int:
    """Print the script; 0."""
    head = f"# nodetopo completion for {args.shell}; load it with: {_LOAD[args.shell]}\n"
    say(head + _PRELUDE[args.shell] + STORED[args.shell].read_text("utf-8"))
    return 0
