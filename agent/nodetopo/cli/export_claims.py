"""The claims of GPUs that ``nodetopo export --for dra`` prints."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from nodetopo.cli.cluster_source import load_nodes, server
from nodetopo.cli.dra_source import Published, published_in, read_objects
from nodetopo.cli.output import warn
from nodetopo.cli.source import load, settings
from nodetopo.errors import InputError, NothingFound
from nodetopo.machines import bundled
from nodetopo.model.digits import is_digits
from nodetopo.model.dra import PCI_BUS_ID, SLICES
from nodetopo.tools.cluster.export.dra import ClaimOptions, export_claims
from nodetopo.tools.cluster.export.record import CLAIM_FORMS, CLAIMS, Exported
from nodetopo.tools.cluster.export.shapes import Shape, shape_of, shapes_of


def claims(args: Namespace) -> Exported:
    """Return the claims of a machine, or of the shapes that the cluster publishes."""
    form = args.form or CLAIM_FORMS[0]
    if form not in CLAIM_FORMS:
        known = f"known are: {', '.join(CLAIM_FORMS)}"
        raise InputError(f"unknown form {form!r} of {CLAIMS}", known)
    prefix = settings(args).label_prefix
    chosen: dict[str, Any] = {} if args.driver is None else {"driver": args.driver}
    if args.cpus is not None:
        if args.with_cpus is None:
            raise InputError("--cpus is for --with-cpus", "add it, or leave --cpus out")
        if args.cpus < 1:
            raise InputError(f"--cpus {args.cpus}", "give a number of CPUs for each GPU")
        chosen["cpus"] = args.cpus
    options = ClaimOptions(
        name=args.name,
        prefix=prefix,
        form=form,
        sizes=_sizes(args.sizes),
        device_class=args.device_class,
        nic_driver=args.with_nics,
        cpu_driver=args.with_cpus,
        namespace=args.in_namespace,
        **chosen,
    )
    shapes = _shapes(args, options)
    return export_claims(shapes, replace(options, release=_release(args)))


def _nothing_usable(found: Published, options: ClaimOptions) -> NothingFound | None:
    """Return why no device can be claimed although the driver publishes, if it does.

    The pools have already been named one by one.
    """
    pools = [pool for pool in found.pools if pool.driver == options.driver]
    if not pools:
        return None
    if all(pool in (*found.incomplete, *found.unplaced) for pool in pools):
        return NothingFound(f"no pool of {options.driver} can be used", "see the warnings before")
    what = f"no device of {options.driver} is a whole GPU with a PCI address"
    return NothingFound(what, f"claims name GPUs by {PCI_BUS_ID}: check the driver's version")


def _release(args: Namespace) -> tuple[int, int] | None:
    """Return the release of the cluster; ``None`` without one, or where it does not say."""
    if args.machine or args.snapshot or args.slices:
        return None

    return release_of(server(args).version())


def release_of(version: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the release that an API server's ``/version`` names, such as ``1.37+``."""
    numbers = [str(version.get(name)).rstrip("+") for name in ("major", "minor")]
    return (int(numbers[0]), int(numbers[1])) if all(map(is_digits, numbers)) else None


def _sizes(text: str | None) -> tuple[int, ...]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    sizes = [int(word) if is_digits(word) else 0 for word in words]
    if not all(sizes) or (text is not None and not sizes):
        raise InputError(f"--sizes {text!r}", "give numbers of GPUs, by comma: 1,2,4,8")
    return tuple(dict.fromkeys(sizes))


def _shapes(args: Namespace, options: ClaimOptions) -> Sequence[Shape]:
    if args.machine is not None or args.snapshot is not None:
        for name in ("nodes", "cluster", "selector"):
            if getattr(args, name):
                raise InputError(f"--{name} does not go with one machine", "leave it out")
        return (shape_of(load(args), options.drivers),)

    if args.slices is None and args.nodes is not None:
        cure = "name their ResourceSlices too, with --slices"
        raise InputError("Nodes alone do not say which GPUs a node has", cure)
    if args.slices is not None and args.cluster is not None:
        raise InputError("--cluster has its own ResourceSlices", "leave --slices out")
    # A file of slices is enough; labels only say which nodes a claim is for.
    is_asked = args.nodes is not None or args.slices is None
    if args.selector and not is_asked:
        raise InputError("--selector chooses Nodes", "name them too, with --nodes")
    nodes = load_nodes(args) if is_asked else ()
    slices = (
        server(args).listed(SLICES)
        if args.slices is None
        else read_objects(args.slices, "ResourceSlice")
    )
    found = published_in(slices, nodes if is_asked else None)
    _warn_of_pools(args, found, options)
    wanted = {node.name for node in nodes}
    broken = {(pool.driver, pool.name) for pool in found.incomplete}
    published = {
        node: tuple(device for device in devices if device.key[:2] not in broken)
        for node, devices in found.by_node.items()
        if node in wanted or not is_asked
    }
    shapes = shapes_of(
        published,
        nodes,
        map(bundled.machine, bundled.names()),
        drivers=options.drivers,
        prefix=options.prefix,
    )
    if not shapes and (nothing := _nothing_usable(found, options)) is not None:
        raise nothing
    return shapes


def _warn_of_pools(args: Namespace, found: Published, options: ClaimOptions) -> None:
    """Warn of pools of the drivers in question whose devices are in no claim."""
    drivers = {options.driver, options.nic_driver, options.cpu_driver}
    for pool in found.incomplete:
        if pool.driver in drivers:
            what = f"{pool.title} has {pool.slices} of {pool.expected} slices"
            warn(args, f"{what}: nothing of it can be allocated, it is left out")
    for pool in found.unplaced:
        if pool.driver in drivers:
            what = f"{pool.title} selects its nodes by {' and '.join(pool.selects_by)}"
            warn(
                args,
                f"{what}: name the Nodes with --nodes, its {pool.devices} devices are left out",
            )
