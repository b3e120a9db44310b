"""``nodetopo audit``: checks of settings and pods."""

from argparse import Namespace

from msgspec.structs import replace

from nodetopo.checks.rule import Area
from nodetopo.cli import alignment, judging, output
from nodetopo.cli.output import Answer
from nodetopo.cli.source import load, manifest_of, read_manifest_of
from nodetopo.components.audit.alignment.measure import measured
from nodetopo.components.audit.catalogue import AUDIT
from nodetopo.errors import InputError
from nodetopo.model.snapshot import Snapshot


def run(args: Namespace) -> int:
    """Run the audit rules; 1 when one failed, 3 when one could not tell."""
    rules = judging.selected(AUDIT, args.only, "audit")
    if args.manifest is not None:
        text = manifest_of(args)
        snapshot = load(args, needs_gpus=False, in_full=True, is_reported=True)
        snapshot = replace(snapshot, pods=read_manifest_of(text, args, snapshot).pods)
        # Rules that were asked for by name are printed, whatever they are about.
        without_pods = None if args.only else replace(snapshot, pods=())
        return judging.judge(snapshot, rules, args, without_pods=without_pods)
    snapshot = load(args, needs_gpus=False, in_full=True, pods=True, is_reported=True)
    if args.pod is not None:
        snapshot = _with_only_pod(snapshot, args.pod)
    if all(rule.area is not Area.ALIGNMENT for rule in rules):
        return judging.judge(snapshot, rules, args)

    def with_alignment(answer: Answer) -> Answer:
        """Return *answer* with the real alignment of every running pod with GPUs or HCAs."""
        rows = measured(snapshot)
        table = alignment.text(rows, output.style(no_color=args.no_color))
        return replace(
            answer,
            plain={**answer.plain, "alignment": alignment.plain(rows)},
            table=f"{table}\n{answer.table}" if table else answer.table,
        )

    return judging.judge(snapshot, rules, args, with_alignment)


def _with_only_pod(snapshot: Snapshot, wanted: str) -> Snapshot:
    namespace, slash, name = wanted.rpartition("/")
    if snapshot.pods is None:
        cure = "use a source with pods, or --manifest FILE"
        raise InputError(f"this source knows no pods, so not {wanted!r}", cure)
    namespace = namespace if slash else "default"
    pods = tuple(pod for pod in snapshot.pods if (pod.namespace, pod.name) == (namespace, name))
    if not pods:
        known = ", ".join(f"{pod.namespace}/{pod.name}" for pod in snapshot.pods) or "none"
        raise InputError(f"no pod {namespace}/{name} on this node", f"pods are: {known}")
    return replace(snapshot, pods=pods)
