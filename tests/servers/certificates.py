"""Certificates for tests, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any


def certificate(folder: Path, name: str = "127.0.0.1") -> dict[str, Any]:
    """A new one, signed by itself."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    made = ["-keyout", str(key), "-out", str(cert), "-subj", f"/CN={name}"]
    command = ["openssl", "req", "-x509", *kind, *made, "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return {"tls_cert": str(cert), "tls_key": str(key)}
