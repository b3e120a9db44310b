"""Access to the API server: by the pod's service account, or a kubeconfig.

The ``kubernetes`` package reads kubeconfigs whose users need other programs or cloud providers. It
costs 19 MiB (552 modules, version 37), so simple sources of an address, a token and a certificate
are read without it: a pod's service account, and a plain kubeconfig
(:mod:`nodetopo.kubeapi.kubeconfig`).
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from nodetopo.errors import ApiUnavailable, UnreadableError
from nodetopo.probes.host import service_account

_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
_PROXIES = ("HTTPS_PROXY", "https_proxy")
_PLAIN_PROXIES = ("HTTP_PROXY", "http_proxy")
_OWN = "the service account of this pod"


class Access(Struct, frozen=True):
    """A way to the API server."""

    host: str  # URL that requests go to
    pool: Any  # a `urllib3.PoolManager` that trusts the server
    # Authentication headers, for each request, because tokens are rotated; raises ApiUnavailable.
    credentials: Callable[[], Mapping[str, str]]


def is_known(kubeconfig: Path | None) -> bool:
    """Return whether an API server is known: from *kubeconfig*, or for the own pod."""
    return kubeconfig is not None or bool(os.environ.get(_HOST))


def access(kubeconfig: Path | None, context: str | None = None) -> Access:
    """Return the access by *kubeconfig*, or else by the own pod's service account.

    Args:
        kubeconfig: a file; several can be joined by colons, as in ``$KUBECONFIG``.
        context: of the kubeconfig; ``None`` for its current one.

    Raises:
        ApiUnavailable: no usable kubeconfig or service account.
    """
    is_in_pod = kubeconfig is None and bool(os.environ.get(_HOST))
    if kubeconfig is None and not is_in_pod:
        raise ApiUnavailable("no API server is known", "give --kubeconfig, or run in a pod")
    # What of NO_PROXY counts for an address is for the package to say.
    if is_in_pod and not any(map(os.environ.get, _PROXIES)):
        return _service_account()
    is_direct = not any(map(os.environ.get, (*_PROXIES, *_PLAIN_PROXIES)))
    if kubeconfig is not None and is_direct:
        from nodetopo.kubeapi.kubeconfig import plain  # noqa: PLC0415 - pods have an account

        if (settings := plain(kubeconfig, context)) is not None:
            return Access(settings.host, _pool(**settings.pool_settings), settings.credentials)
    return _by_package(kubeconfig, context, is_in_pod=is_in_pod)


def _pool(**settings: Any) -> Any:
    from urllib3 import PoolManager  # noqa: PLC0415 - costs memory before use

    return _connecting(PoolManager(**settings))


def _connecting(pool: Any) -> Any:
    from nodetopo.kubeapi.verification import as_kubectl_connects  # noqa: PLC0415 - as urllib3

    return as_kubectl_connects(pool)


def _service_account() -> Access:
    host, port = os.environ[_HOST], os.environ.get(_PORT, "443")
    authority = service_account.DIRECTORY / "ca.crt"
    try:
        _token()
        if not authority.stat().st_size:
            raise _unusable(_OWN, f"{authority} is empty")
    except OSError as error:
        raise _unusable(_OWN, f"{authority}: {error.strerror}") from error
    return Access(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        _pool(cert_reqs="CERT_REQUIRED", ca_certs=str(authority)),
        _token,
    )


def _token() -> Mapping[str, str]:
    try:
        token = service_account.read_token(service_account.DIRECTORY / "token")
    except UnreadableError as error:
        raise ApiUnavailable(error.cause, error.cure) from error
    return {"authorization": f"Bearer {token}"}


def _by_package(kubeconfig: Path | None, context: str | None, *, is_in_pod: bool) -> Access:
    # Imported here: a pod without a proxy, and a command line without a cluster, never need it.
    from kubernetes import client, config  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    load: Any = config  # this module of the package is not typed
    configuration = client.Configuration()
    try:
        if is_in_pod:
            load.load_incluster_config(client_configuration=configuration)
        else:
            file = str(kubeconfig)
            load.load_kube_config(
                file, context, client_configuration=configuration, persist_config=False
            )
        api = client.ApiClient(configuration)
    # The package does not check types: a file that is no kubeconfig ends in any of these.
    except (
        config.ConfigException,
        OSError,
        YAMLError,
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
    ) as error:
        raise _unusable(kubeconfig or _OWN, " ".join(str(error).split())) from error

    def credentials() -> Mapping[str, str]:
        try:
            # Asking for the settings also renews a token that has expired.
            settings: Any = configuration.auth_settings().values()
        except (config.ConfigException, OSError) as error:
            cause = f"cannot read the service account token: {error}"
            raise ApiUnavailable(cause, "mount the token") from error
        return {item["key"]: item["value"] for item in settings if item["in"] == "header"}

    pool = _connecting(api.rest_client.pool_manager)
    return Access(str(configuration.host), pool, credentials)


def _unusable(account: object, reason: object) -> ApiUnavailable:
    return ApiUnavailable(
        f"cannot use {account}: {reason}",
        "give a readable kubeconfig with --kubeconfig, or mount the service account token",
    )
