"""Plain kubeconfigs: a server, its certificate authority, and a token or a client certificate.

The ``kubernetes`` package, which reads every kubeconfig, costs a daemon 550 modules and 20 MiB. It
only handles features that a daemon's kubeconfig rarely has: plugins that fetch credentials,
passwords, proxies, several files, unverified servers, and anything wrong or unknown here, so that
its messages stay (client-go tools/clientcmd/api/v1/types.go has all fields).
"""

import base64
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodetopo.errors import ApiUnavailable, UnreadableError
from nodetopo.formats.document import load_all
from nodetopo.probes.host import service_account

_MAX_BYTES = 1 << 20
"""Bytes of a kubeconfig that are read; with certificates inside it has some 10 KB."""

_CLUSTER = ("server", "certificate-authority", "certificate-authority-data", "extensions")
_CERTIFICATE = ("client-certificate", "client-key")
_CERTIFICATE_DATA = ("client-certificate-data", "client-key-data")
_USER = ("token", "tokenFile", "extensions", *_CERTIFICATE, *_CERTIFICATE_DATA)


class Plain(Struct, frozen=True):
    """Access to an API server with only the standard library and urllib3."""

    host: str  # its URL, without a slash at the end
    pool_settings: Mapping[str, Any]  # arguments of `urllib3.PoolManager`
    credentials: Callable[[], Mapping[str, str]]  # authentication headers; can raise ApiUnavailable


class _NotPlainError(Exception):
    """The kubeconfig is for the package to read."""


def plain(kubeconfig: Path, context: str | None) -> Plain | None:
    """Return the access by *kubeconfig*'s context; ``None`` if the package must read it."""
    try:
        with kubeconfig.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            return None
        document, *others = load_all(content.decode())
        if others or not isinstance(document, dict):
            return None
        chosen = _named(document, "context", context or document.get("current-context"))
        cluster = _named(document, "cluster", chosen.get("cluster"))
        user = _named(document, "user", chosen.get("user"))
        return _plain(cluster, user, kubeconfig.parent)
    except (OSError, ValueError, _NotPlainError):
        return None


def _named(document: Mapping[str, Any], kind: str, name: object) -> Mapping[str, Any]:
    """Return the only entry *name* of a list of *kind*, none of whose entries is odd."""
    entries = document.get(f"{kind}s")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _NotPlainError
    named = [entry.get(kind) for entry in entries if entry.get("name") == name]
    if len(named) != 1 or not isinstance(named[0], dict):
        raise _NotPlainError
    return named[0]


def _plain(cluster: Mapping[str, Any], user: Mapping[str, Any], home: Path) -> Plain:
    server = _text(cluster, "server")
    if server is None or cluster.keys() - set(_CLUSTER) or user.keys() - set(_USER):
        raise _NotPlainError
    credentials = _credentials(_text(user, "token"), _file(user, "tokenFile", home))
    is_secure = server.startswith("https://")
    if not is_secure and not server.startswith("http://"):
        raise _NotPlainError
    settings = _tls(cluster, user, home) if is_secure else {}
    return Plain(server.rstrip("/"), settings, credentials)


def _credentials(token: str | None, file: Path | None) -> Callable[[], Mapping[str, str]]:
    if token is not None and (file is not None or not token.isascii() or not token.isprintable()):
        raise _NotPlainError

    def of_file() -> Mapping[str, str]:
        assert file is not None, "only used where there is one"
        try:
            return {"authorization": f"Bearer {service_account.read_token(file)}"}
        except UnreadableError as error:
            raise ApiUnavailable(error.cause, error.cure) from error

    if file is not None:
        return of_file
    return lambda: {} if token is None else {"authorization": f"Bearer {token}"}


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], home: Path) -> Mapping[str, Any]:
    """Return the settings for verifying the server, and our client certificate."""
    authority = _file(cluster, "certificate-authority", home)
    authority_data = _data(cluster, "certificate-authority-data")
    if (authority is None) == (authority_data is None):
        raise _NotPlainError
    certificate, key = (_file(user, name, home) for name in _CERTIFICATE)
    certificate_data, key_data = (_data(user, name) for name in _CERTIFICATE_DATA)
    if (certificate is None) != (key is None) or (certificate_data is None) != (key_data is None):
        raise _NotPlainError
    if certificate_data is not None and key_data is not None:
        if certificate is not None:
            raise _NotPlainError
        cafile = None if authority is None else str(authority)
        return {"ssl_context": _with_own(cafile, authority_data, certificate_data, key_data)}
    settings: dict[str, Any] = {"cert_reqs": "CERT_REQUIRED"}
    if authority_data is not None:
        settings["ca_cert_data"] = authority_data.decode()
    else:
        settings["ca_certs"] = str(authority)
    if certificate is not None:  # read for each connection, so that it can be rotated
        settings |= {"cert_file": str(certificate), "key_file": str(key)}
    return settings


def _with_own(
    authority: str | None, authority_data: bytes | None, certificate: bytes, key: bytes
) -> ssl.SSLContext:
    """Return a context with a client certificate, which OpenSSL takes from files alone."""
    data = None if authority_data is None else authority_data.decode()
    context = ssl.create_default_context(cafile=authority, cadata=data)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as nodetopo.kubeapi.verification
    with open(os.memfd_create("certificate"), "wb") as file:  # noqa: PTH123 - a file without a path
        file.write(certificate + b"\n" + key)
        file.flush()
        # An encrypted key fails, instead of asking a person for its password.
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=lambda: "")
    return context


def _text(entry: Mapping[str, Any], name: str) -> str | None:
    """Return a field; ``None`` where it is absent or empty."""
    value = entry.get(name) or None
    if value is not None and not isinstance(value, str):
        raise _NotPlainError
    return value


def _file(entry: Mapping[str, Any], name: str, home: Path) -> Path | None:
    """Return the path of a field, which is relative to the kubeconfig; it must be readable."""
    text = _text(entry, name)
    if text is None:
        return None
    path = home / text
    if not os.access(path, os.R_OK):
        raise _NotPlainError
    return path


def _data(entry: Mapping[str, Any], name: str) -> bytes | None:
    text = _text(entry, name)
    return None if text is None else base64.b64decode(text, validate=True)
