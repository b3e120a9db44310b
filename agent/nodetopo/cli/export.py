"""``nodetopo export``: the cluster's topology, written for one scheduler or as claims of GPUs."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from nodetopo.cli.cluster_source import api, load_nodes
from nodetopo.cli.output import json_text, note, progress, say, warn
from nodetopo.cli.source import settings
from nodetopo.errors import InputError, NothingFound
from nodetopo.formats.yaml import yaml_text
from nodetopo.tools.cluster.export.record import CLAIMS, FORMS, Exported
from nodetopo.tools.cluster.kinds import selector

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


def run(args: Namespace) -> int:
    """Print the topology or the claims; 0, also for an empty output, which is a warning."""
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


def _claims(args: Namespace) -> Exported:
    from nodetopo.cli.export_claims import (  # noqa: PLC0415 - placement, which no topology needs
        claims,
    )

    _refuse(args, _OTHERS, f"does not go with --for {CLAIMS}")
    return claims(args)


def _topology(args: Namespace) -> Exported:
    from nodetopo.tools.cluster.export.formats import (  # noqa: PLC0415 - 9 modules
        ExportOptions,
        export,
    )

    _refuse(args, _OF_CLAIMS, f"is for --for {CLAIMS}")
    wanted = selector(args.selector).requirements
    equal = {
        requirement.key: requirement.value
        for requirement in wanted
        if requirement.value is not None and not requirement.is_negated
    }
    options = ExportOptions(
        name=args.name,
        prefix=settings(args).label_prefix,
        levels=tuple(key.strip() for key in args.levels.split(",") if key.strip()),
        node_labels=equal,
        form=args.form,
        namespace=args.in_namespace,
        size=args.size,
        cluster_id=args.cluster_id or _simulated_id(args),
    )
    nodes = load_nodes(args)
    if args.scheduler == "kubernetes":
        options = replace(options, form=_served_form(args))
    return export(args.scheduler, nodes, options)


def _simulated_id(args: Namespace) -> str | None:
    """Return Run:ai's UUID of a bundled cluster; ``None`` for a real one."""
    if args.cluster is None:
        return None
    from nodetopo.tools.cluster.simulated import RUNAI_ID  # noqa: PLC0415 - few exports need it

    return RUNAI_ID


def _served_form(args: Namespace) -> str | None:
    """Return the requested form, else the newest that the cluster serves."""
    cluster = api(args)
    forms = FORMS["kubernetes"]
    if cluster is None or args.form not in {None, *forms}:
        return args.form if isinstance(args.form, str) else None
    answers = {form: cluster.serves(f"scheduling.k8s.io/{form}", "podgroups") for form in forms}
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


def _document_text(objects: Sequence[Any], document: Any, output: str) -> str:
    if output == "json":
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return json_text(whole if objects else document)
    return yaml_text(objects or (document,), width=100)
