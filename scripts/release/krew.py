"""The plugin of kubectl for krew: a launcher, its archive, and the manifest that names it.

nodetopo needs packages with compiled parts, so a single file cannot hold it. The launcher has pipx
or uv fetch the release from PyPI into an environment of its own.
"""

import gzip
import hashlib
import io
import tarfile
import textwrap

from scripts.release.tree import Release

ARCHIVE = "kubectl-nodetopo.tar.gz"
PROGRAM = "kubectl-nodetopo"

_LAUNCHER = """\
#!/bin/sh
# Runs `kubectl nodetopo` of the release {version}, which uv or pipx fetches from PyPI once.
set -eu
if command -v uvx >/dev/null; then
  exec uvx --quiet --from "nodetopo=={version}" kubectl-nodetopo "$@"
elif command -v pipx >/dev/null; then
  exec pipx run --spec "nodetopo=={version}" kubectl-nodetopo "$@"
fi
echo "error: neither uv nor pipx is on the PATH — install one of them, and Python 3.11 or newer" >&2
exit 3
"""

_MANIFEST = """\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: nodetopo
spec:
  version: v{version}
  homepage: {url}
  shortDescription: Explain placement, topology and health of GPUs
  description: |
{description}
  caveats: |
    Needs uv or pipx, and Python 3.11 or newer.
  platforms:
    - selector:
        matchExpressions:
          - key: os
            operator: In
            values: [darwin, linux]
      uri: {uri}
      sha256: {digest}
      files:
        - from: {program}
          to: .
        - from: LICENSE
          to: .
      bin: {program}
"""

_DESCRIPTION = """\
Runs a command of nodetopo in the agent's pod of a node (health, audit, topology, placement, whether
its kubelet would admit a pod), or one about the whole cluster (doctor, export, explain-claim).
"""


def launcher(release: Release) -> str:
    """Return the program."""
    return _LAUNCHER.format(version=release.version)


def archive(release: Release, licence: bytes, time: int) -> bytes:
    """Return the archive; *time* is that of its files, so that the same release gives the same."""
    packed = io.BytesIO()
    files = ((PROGRAM, launcher(release).encode(), 0o755), ("LICENSE", licence, 0o644))
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content, mode in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), mode, time
            tar.addfile(entry, io.BytesIO(content))
    compressed = io.BytesIO()
    with gzip.GzipFile(fileobj=compressed, mode="wb", mtime=time) as gz:
        gz.write(packed.getvalue())
    return compressed.getvalue()


def manifest(release: Release, packed: bytes) -> str:
    """Return the manifest of the archive *packed*."""
    return _MANIFEST.format(
        version=release.version,
        url=release.url,
        uri=release.download(ARCHIVE),
        digest=hashlib.sha256(packed).hexdigest(),
        program=PROGRAM,
        description=textwrap.indent(_DESCRIPTION, " " * 4).rstrip("\n"),
    )
