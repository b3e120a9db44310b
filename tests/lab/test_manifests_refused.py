"""Manifests that ``admit`` and ``audit`` refuse, held against the real API server."""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from nodetopo.errors import InputError
from nodetopo.probes.pods.manifest import pods_from_manifest
from scripts.generators.manifests import RECORD
from scripts.generators.registry import hint
from tests.lab.api import Api, ApiError, Object
from tests.lab.cluster import Cluster
from tests.lab.manifest_random import manifests
from tests.lab.release import chosen
from tests.probes.pods.manifest_cases import ANSWERS, CASES, template_path

pytestmark = pytest.mark.lab

SEED = int(os.environ.get("NODETOPO_MANIFEST_SEED", "16"))
DRAWN = 6000 if os.environ.get("NODETOPO_NIGHTLY") else 1200

_PATHS = {
    "v1": "/api/v1",
    "apps/v1": "/apis/apps/v1",
    "batch/v1": "/apis/batch/v1",
    "extensions/v1beta1": "/apis/extensions/v1beta1",
}
_SHOWN = 160
_DRAWN_ANEW = re.compile(r"[0-9a-f]{8}-[-0-9a-f]{4,27}|(?<=-)[a-z0-9]{5}(?=\")")
"""Uids, and ends of generated names."""


def test_the_answers_of_the_table_are_the_server_s(cluster: Cluster) -> None:
    answers = {name: _answer(cluster.api, case) for name, case in CASES.items()}
    if record := os.environ.get(RECORD):
        text = json.dumps(answers, indent=1, sort_keys=True) + "\n"
        Path(record).write_text(text, "utf-8")
    assert json.loads(ANSWERS.read_text("utf-8")) == answers, hint("manifests")


def test_drawn_manifests_are_refused_where_the_server_refuses_them(cluster: Cluster) -> None:
    counts: Counter[tuple[str, bool]] = Counter()
    wrong: list[str] = []
    for manifest in manifests(DRAWN, SEED):
        ours, theirs = _ours(manifest), _answer(cluster.api, manifest)
        counts[manifest["kind"], theirs is None] += 1
        if (ours is None) != (theirs is None):
            wrong.append(f"ours: {ours}\ntheirs: {theirs}\n{json.dumps(manifest)}")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n\n".join(wrong[:20])
    least = DRAWN // 200  # of every kind some are accepted and some refused
    assert min(counts.values()) >= least, counts
    assert len(counts) == 2 * 9, counts


def _ours(manifest: Object) -> str | None:
    try:
        pods_from_manifest(json.dumps(manifest, ensure_ascii=False), chosen().server)
    except InputError as error:
        return str(error)
    return None


def _answer(api: Api, manifest: Object) -> list[str] | None:
    """Return what the server says against *manifest*, or against its pods; None if nothing."""
    said = _said(api, manifest)
    if said is not None or manifest["kind"] == "Pod":
        return said
    template: object = manifest
    for step in template_path(manifest["kind"]).split("."):
        assert isinstance(template, Mapping)
        template = template[step]
    assert isinstance(template, Mapping)
    spec = dict(template["spec"])
    claims = manifest.get("spec", {}).get("volumeClaimTemplates") or ()
    if claims:  # as the controller adds them
        named = [{"name": claim["metadata"]["name"]} for claim in claims]
        spec["volumes"] = [*(spec.get("volumes") or ()), *named]
    labels = (template.get("metadata") or {}).get("labels")
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "made", "labels": labels}}
    said = _said(api, {**made, "spec": spec})
    return None if said is None else [f"its pods: {each}" for each in said]


def _said(api: Api, manifest: Object) -> list[str] | None:
    """Return the causes, each with its field, in fixed order and without what is drawn anew."""
    kind = manifest["kind"]
    path = f"{_PATHS[manifest['apiVersion']]}/namespaces/default/{kind.lower()}s?dryRun=All"
    try:
        api.create(path, manifest)
    except ApiError as error:
        is_admission = error.code == 403 and "pod rejected" in str(error)
        if error.code not in (400, 404, 422) and not is_admission:
            raise
        text = str(error).partition(": ")[2]
        status: Object = {"message": text.strip()}
        status = json.loads(text) if text.startswith("{") else status
        causes = (status.get("details") or {}).get("causes") or [status]
        said = {f"{cause.get('field', '')}: {cause['message']}"[:_SHOWN] for cause in causes}
        return sorted(_DRAWN_ANEW.sub("…", each) for each in said)
    return None
