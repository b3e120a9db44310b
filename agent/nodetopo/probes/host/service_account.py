"""A pod's service account: the files that the kubelet mounts, and renews in time."""

from pathlib import Path

from nodetopo.errors import UnreadableError

DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its account: ``token``, and ``ca.crt`` of the cluster's authority
(https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/)."""

MAX_TOKEN_BYTES = 64 << 10
"""Go's server accepts at most 1 MiB of headers; real tokens have 1 to 4 KiB."""

_CURE = "mount the service account's token, and give the account back if it was deleted"


def read_token(file: Path) -> str:
    """Return the current token in *file*.

    Raises:
        UnreadableError: the file cannot be read, or has no token.
    """
    try:
        with file.open("rb") as opened:
            raw = opened.read(MAX_TOKEN_BYTES + 1).strip()
    except OSError as error:
        cause = f"cannot read the service account token {file}: {error.strerror}"
        raise UnreadableError(cause, _CURE) from error
    if not 0 < len(raw) <= MAX_TOKEN_BYTES or any(not 0x21 <= byte <= 0x7E for byte in raw):
        raise UnreadableError(f"{file} holds no token", _CURE)
    return raw.decode("ascii")
