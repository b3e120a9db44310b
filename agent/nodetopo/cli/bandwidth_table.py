"""The table of measured bandwidths that ``--bandwidth-table`` names."""

from argparse import Namespace

from nodetopo.allocation.measured import BandwidthTable
from nodetopo.cli.files import read_text, reading
from nodetopo.errors import DecodeError, InputError
from nodetopo.formats.signatures import Reader
from nodetopo.model.snapshot import Snapshot


def measured_table(args: Namespace, snapshot: Snapshot) -> BandwidthTable | None:
    """Return the table of ``--bandwidth-table``, which fits *snapshot*.

    Raises:
        InputError: it cannot be used.
    """
    if args.bandwidth_table is None:
        return None
    return read_table(args.bandwidth_table, snapshot, "give a table of this machine")


def read_table(name: str, snapshot: Snapshot, cure: str | None = None) -> BandwidthTable:
    """Return the table in the file *name*; *cure* helps if it is of another machine.

    Raises:
        InputError: it cannot be used.
    """
    from nodetopo.kernel.settings.data_files import (  # noqa: PLC0415 - settings, which no model needs
        parse,
    )

    text = read_text(name)
    with reading(name, text, Reader.TABLE, is_named=True):
        table = parse(name, text)
    try:
        table.on(snapshot)
    except DecodeError as error:
        raise InputError(f"{name}: {error.cause}", cure or error.cure) from None
    return table
