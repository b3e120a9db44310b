"""``nodetopo export``: the cluster's topology, written for one scheduler or as claims of GPUs."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.cli.cluster_source import add_cluster_source, api, load_nodes
from agent.cli.output import json_text, note, progress, say, warn
from agent.cli.parser import Parser, add_style
from agent.cli.source import add_settings, load, settings
from agent.cluster.export.record import (
    CLAIM_FORMS,
    CLAIMS,
    DEFAULT_NAME,
    FORMS,
    SCHEDULERS,
    Exported,
)
from agent.cluster.kinds import selector
from agent.errors import InputError, NothingFound
from agent.model.digits import is_digits
from agent.model.dra import PCI_BUS_ID, SLICES

if TYPE_CHECKING:  # they load placement, which no topology needs
    from agent.cli.dra_source import Published
    from agent.cluster.export.dra import ClaimOptions
    from agent.cluster.export.shapes import Shape

_EPILOG = (
    "Levels are chosen from labels that all selected nodes with GPUs carry, broadest first: "
    "region, zone, tiers, NVLink domain and partition, host. What was left out, and what the "
    "scheduler would misread, is a warning. Nothing is written to the cluster: the output "
    "is for `kubectl apply`. Claims (dra) are made from a machine, or from the ResourceSlices that "
    "DRA drivers publish."
)

_OTHERS = ("levels", "size", "cluster_id")
"""Flags that claims have no use for."""

_OF_CLAIMS = (
    "machine",
    "snapshot",
    "slices",
    "sizes",
    "driver",
    "device_class",
    "with_nics",
    "with_cpus",
    "cpus",
)
"""Flags that only claims have a use for."""


def add(parser: Parser) -> None:
    """Add the flags."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--for",
        dest="scheduler",
        required=True,
        choices=(*SCHEDULERS, CLAIMS),
        metavar="SCHEDULER",
        help=f"one of {', '.join(SCHEDULERS)}; or {CLAIMS}: claims of GPUs",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("yaml", "json"),
        metavar="FORMAT",
        help="yaml or json (default: yaml; json for runai)",
    )
    add_style(parser)
    add_cluster_source(parser)
    add = parser.add_argument_group("object").add_argument
    all_forms = {**FORMS, CLAIMS: CLAIM_FORMS}
    forms = "; ".join(f"{name}: {', '.join(forms)}" for name, forms in all_forms.items() if forms)
    add("--levels", default="", metavar="KEY,…", help="broadest first (default: chosen)")
    add("--name", default=DEFAULT_NAME, help=f"of the object (default: {DEFAULT_NAME})")
    add("--form", help=f"for {forms} (default: the first; for kubernetes the newest served)")
    add(
        "--size", type=int, metavar="N", help="pods of a group (default: the largest place's nodes)"
    )
    add("--in-namespace", metavar="NAME", help="of an object that lives in one")
    add("--cluster-id", metavar="UUID", help="of the cluster, for runai")
    _add_claims(parser)
    add_settings(parser, ("label_prefix",), "labels")
    parser.set_defaults(run=run)


def _add_claims(parser: Parser) -> None:
    group = parser.add_argument_group(
        "claims, for dra", "default: the machines whose GPUs the cluster's ResourceSlices publish"
    )
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--machine",
        metavar="NAME",
        help="a bundled machine, see `nodetopo simulate machines`",
    )
    source.add_argument(
        "--snapshot",
        metavar="FILE",
        help="a captured snapshot, or archive of `support`, - for stdin",
    )
    source.add_argument(
        "--slices",
        metavar="FILE",
        help="`kubectl get resourceslices -o json` (or yaml), - for stdin; no cluster is asked",
    )
    add = group.add_argument
    add("--sizes", metavar="N,…", help="GPUs of a claim (default: 1,2,4,8,…, and all of a node)")
    add("--driver", metavar="NAME", help="whose GPUs: gpu.nvidia.com (default), nodetopo.io")
    add("--device-class", metavar="NAME", help="also write this class (default: the driver's own)")
    add(
        "--with-nics",
        metavar="DRIVER",
        nargs="?",
        const="dra.net",
        help="claim RDMA NICs too, of the driver dra.net by default",
    )
    add(
        "--with-cpus",
        metavar="DRIVER",
        nargs="?",
        const="dra.cpu",
        help="claim CPUs too, of the driver dra.cpu by default",
    )
    add("--cpus", type=int, metavar="N", help="CPUs for each GPU, with --with-cpus (default: 8)")


def run(args: Namespace) -> int:
    """Print the topology or the claims; 0, also where there is none to print: that is a warning."""
    try:
        found = _claims(args) if args.scheduler == CLAIMS else _topology(args)
    except NothingFound as nothing:
        warn(args, f"nothing to export: {nothing}")
        return 0
    if found.text is not None and args.output is not None:
        raise InputError(f"{args.form} is a format of its own", "leave -o out")
    for remark in found.remarks:
        if remark.kind == "warning":
            warn(args, remark.text)
        else:
            note(remark.kind, remark.text)
    usual = "json" if args.scheduler == "runai" else "yaml"  # the body of a request
    with progress("writing it down"):
        text = found.text or _document_text(found.objects, found.document, args.output or usual)
    say(text)
    return 0


def _topology(args: Namespace) -> Exported:
    from agent.cluster.export.formats import ExportOptions, export  # noqa: PLC0415 - 9 modules

    _refuse(args, _OF_CLAIMS, f"is for --for {CLAIMS}")
    wanted = selector(args.selector).requirements
    equal = {one.key: one.value for one in wanted if one.value is not None and not one.is_negated}
    options = ExportOptions(
        name=args.name,
        prefix=settings(args).label_prefix,
        levels=tuple(key.strip() for key in args.levels.split(",") if key.strip()),
        node_labels=equal,
        form=args.form,
        namespace=args.in_namespace,
        size=args.size,
        cluster_id=args.cluster_id,
    )
    nodes = load_nodes(args)
    if args.scheduler == "kubernetes":
        options = replace(options, form=_served_form(args))
    return export(args.scheduler, nodes, options)


def _served_form(args: Namespace) -> str | None:
    """Return the form that is asked for, else the newest that the cluster serves.

    ``None`` for the usual one: there is no cluster to ask, or it serves none.
    """
    connect = api(args)
    forms = FORMS["kubernetes"]
    if connect is None or args.form not in {None, *forms}:
        return args.form if isinstance(args.form, str) else None
    from agent.kubeapi.lists import serves  # noqa: PLC0415 - only with a cluster

    answers = {form: serves(connect, f"scheduling.k8s.io/{form}", "podgroups") for form in forms}
    served = [form for form, answer in answers.items() if answer]
    if args.form is not None:
        form = str(args.form)
        if answers[form] is False:
            others = (
                f"it serves {', '.join(served)}" if served else "the gate GenericWorkload is off"
            )
            warn(args, f"the API server serves no PodGroup in {form}: {others}")
        return form
    if not served and False in answers.values():
        warn(args, "the API server serves no PodGroup: the gate GenericWorkload is off")
    return served[-1] if served else None


def _refuse(args: Namespace, names: Sequence[str], why: str) -> None:
    for name in names:
        if getattr(args, name) not in (None, ""):
            raise InputError(f"--{name.replace('_', '-')} {why}", "leave it out")


def _claims(args: Namespace) -> Exported:
    from agent.cluster.export.dra import ClaimOptions, export_claims  # noqa: PLC0415 - placement

    _refuse(args, _OTHERS, f"does not go with --for {CLAIMS}")
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


def _nothing_usable(found: "Published", options: "ClaimOptions") -> NothingFound | None:
    """Return why there is nothing to claim although the driver publishes; ``None`` if it does not.

    The pools have been named one by one.
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
    from agent.cli.dra_source import connect  # noqa: PLC0415 - only with a cluster

    return release_of(connect(args)().get("/version", {}).body)


def release_of(version: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the release that an API server's ``/version`` names, such as ``1.37+``."""
    found = [str(version.get(name)).rstrip("+") for name in ("major", "minor")]
    return (int(found[0]), int(found[1])) if all(map(is_digits, found)) else None


def _sizes(text: str | None) -> tuple[int, ...]:
    words = [word.strip() for word in (text or "").split(",") if word.strip()]
    sizes = [int(word) if is_digits(word) else 0 for word in words]
    if not all(sizes) or (text is not None and not sizes):
        raise InputError(f"--sizes {text!r}", "give numbers of GPUs, by comma: 1,2,4,8")
    return tuple(dict.fromkeys(sizes))


def _shapes(args: Namespace, options: "ClaimOptions") -> "Sequence[Shape]":
    from agent.cluster.export.shapes import shape_of, shapes_of  # noqa: PLC0415 - only for claims
    from agent.machines import bundled  # noqa: PLC0415 - as above

    if args.machine is not None or args.snapshot is not None:
        for name in ("nodes", "selector"):
            if getattr(args, name):
                raise InputError(f"--{name} does not go with one machine", "leave it out")
        return (shape_of(load(args), options.drivers),)
    from agent.cli.dra_source import (  # noqa: PLC0415 - as above
        list_all,
        published_in,
        read_objects,
    )

    if args.slices is None and args.nodes is not None:
        cure = "name their ResourceSlices too, with --slices"
        raise InputError("Nodes alone do not say which GPUs a node has", cure)
    # A file of slices is enough; labels only say which nodes a claim is for.
    is_asked = args.nodes is not None or args.slices is None
    if args.selector and not is_asked:
        raise InputError("--selector chooses Nodes", "name them too, with --nodes")
    nodes = load_nodes(args) if is_asked else ()
    slices = (
        list_all(args, SLICES)
        if args.slices is None
        else read_objects(args.slices, "ResourceSlice")
    )
    found = published_in(slices, nodes if is_asked else None)
    _warn_of_pools(args, found, options)
    wanted = {node.name for node in nodes}
    broken = {(pool.driver, pool.name) for pool in found.incomplete}
    published = {
        node: tuple(it for it in devices if it.key[:2] not in broken)
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


def _warn_of_pools(args: Namespace, found: "Published", options: "ClaimOptions") -> None:
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


def _document_text(objects: Sequence[Any], document: Any, output: str) -> str:
    if output == "json":
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return json_text(whole if objects else document)
    return _yaml_text(objects or (document,))


def _yaml_text(documents: Sequence[Any]) -> str:
    """Return *documents* as a YAML stream; a text of several lines in them as one sees it."""
    import yaml  # noqa: PLC0415 - 2 MiB and 20 ms that the other commands do without

    def shown(dumper: Any, text: str) -> yaml.ScalarNode:
        node: yaml.ScalarNode = dumper.represent_str(text)
        node.style = "|" if "\n" in text else node.style
        return node

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C: 1 s for 5,000 nodes, not 6
    dumper: Any = type("Dumper", (base,), {})
    dumper.add_representer(str, shown)
    text: str = yaml.dump_all(documents, Dumper=dumper, sort_keys=False, width=100)
    return text
