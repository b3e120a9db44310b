"""``--bandwidth-model`` and ``--bandwidth-table``: how bandwidth is judged, for one command."""

from argparse import Namespace

from agent.allocation.measured import BandwidthTable, Measured, coverage
from agent.allocation.rules import Model
from agent.cli.files import STDIO, read_text
from agent.cli.output import note
from agent.cli.parser import Parser
from agent.config.bandwidth_file import parse
from agent.errors import DecodeError, InputError
from agent.model.snapshot import Snapshot


def add_bandwidth(parser: Parser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--bandwidth-model",
        choices=tuple(model.value for model in Model),
        default=Model.RING.value,
        metavar="WORD",
        help=f"{', '.join(Model)} (default: ring)",
    )
    parser.add_argument(
        "--bandwidth-table",
        metavar="FILE",
        help="measured bandwidths, YAML or JSON, - for stdin; they win over the model",
    )


def check_stdin(args: Namespace) -> None:
    """Hold that no two flags read standard input.

    Raises:
        InputError: they do.
    """
    if args.bandwidth_table == STDIO and STDIO in (args.snapshot, args.topo_m, args.nccl_xml):
        raise InputError("standard input can be read only once", "name one of the two files")


def measured(args: Namespace, snapshot: Snapshot) -> Measured | None:
    """Return the figures of the file that *args* name; say how much of the node it covers.

    Raises:
        InputError: the file cannot be used, or the model needs one.
    """
    name = args.bandwidth_table
    if name is None:
        if args.bandwidth_model == Model.TABLE:
            raise InputError(
                "the model `table` needs measured bandwidths", "add --bandwidth-table FILE"
            )
        return None
    found = _on(name, parse(name, read_text(name)), snapshot)
    note("note", f"{name}: {coverage(found, len(snapshot.gpus))}")
    return found


def _on(name: str, table: BandwidthTable, snapshot: Snapshot) -> Measured:
    try:
        return table.on(snapshot)
    except DecodeError as error:
        raise InputError(f"{name}: {error.cause}", error.cure) from None
