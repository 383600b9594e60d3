"""Where the API server is, and how to prove who we are: as the pod's service account, or as a kubeconfig says."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fencepost.errors import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Access:
    server: str
    """Its URL."""
    namespace: str
    tls: ssl.SSLContext | None
    token: str | None = None
    token_file: Path | None = None
    """Read for each request: the kubelet replaces it every hour or so."""

    def headers(self) -> dict[str, str]:
        token = self.token_file.read_text().strip() if self.token_file else self.token
        return {"Authorization": f"Bearer {token}"} if token else {}


def found_access(kubeconfig: str | None, namespace: str | None) -> Access:
    """By the file given, or FENCEPOST_KUBECONFIG; in a pod its service account; else KUBECONFIG or ~/.kube/config."""
    given = kubeconfig or os.environ.get("FENCEPOST_KUBECONFIG")
    namespace = namespace or os.environ.get("FENCEPOST_KUBERNETES_NAMESPACE")
    if not given and "KUBERNETES_SERVICE_HOST" in os.environ:
        return _of_the_pod(namespace)
    # KUBECONFIG may name several files, which kubectl merges; the first is the one it writes to.
    named = given or os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
    return _of_a_file(Path(named).expanduser(), namespace)


def _of_the_pod(namespace: str | None) -> Access:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not (SERVICE_ACCOUNT / "token").exists():
        raise ConfigurationError(
            f'executor="kubernetes": this pod has no service account token in {SERVICE_ACCOUNT}; '
            "remove automountServiceAccountToken: false, or set FENCEPOST_KUBECONFIG"
        )
    return Access(
        f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace or (SERVICE_ACCOUNT / "namespace").read_text().strip(),
        ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt")),
        token_file=SERVICE_ACCOUNT / "token",
    )


def _of_a_file(path: Path, namespace: str | None) -> Access:
    try:
        config = yaml.safe_load(path.read_bytes())
        context = _named(config, "context", config["current-context"])
        cluster = _named(config, "cluster", context["cluster"])
        user = _named(config, "user", context["user"]) if context.get("user") else {}
        server = str(cluster["server"]).rstrip("/")
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(
            f'executor="kubernetes": not in a pod, and {path} cannot be read ({error}); set FENCEPOST_KUBECONFIG'
        ) from None
    except (KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} is no kubeconfig that can be used: it lacks {error}") from None
    if "exec" in user or "auth-provider" in user:
        raise ConfigurationError(
            f"{path}: the user signs in by a program, which is not supported; use a service account's token"
        )
    token_file = user.get("tokenFile")
    return Access(
        server,
        namespace or context.get("namespace") or "default",
        _tls(cluster, user, path) if server.startswith("https:") else None,
        token=user.get("token"),
        token_file=path.parent / token_file if token_file else None,
    )


def _named(config: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    for each in config[f"{kind}s"]:
        if each["name"] == name:
            found: dict[str, Any] = each[kind]
            return found
    raise KeyError(f"the {kind} {name!r}")


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], path: Path) -> ssl.SSLContext:
    if cluster.get("insecure-skip-tls-verify"):
        raise ConfigurationError(
            f"{path}: insecure-skip-tls-verify is refused: the pods carry out what this server says; "
            "give certificate-authority"
        )
    data = cluster.get("certificate-authority-data")
    authority = cluster.get("certificate-authority")
    context = ssl.create_default_context(
        cafile=str(path.parent / authority) if authority and not data else None,
        cadata=base64.b64decode(data).decode() if data else None,
    )
    if "client-certificate-data" in user:
        with tempfile.NamedTemporaryFile() as both:  # only we may read it, and ssl reads nothing but files
            for name in ("client-certificate-data", "client-key-data"):
                both.write(base64.b64decode(user[name]) + b"\n")
            both.flush()
            context.load_cert_chain(both.name)
    elif "client-certificate" in user:
        certificate, key = (path.parent / user[name] for name in ("client-certificate", "client-key"))
        context.load_cert_chain(certificate, key)
    return context
