"""TLS for `fencepost serve`: a connection counts from the moment it is accepted, not from its handshake.

The event loop's own TLS shows a connection to its protocol when the handshake is over. Connections that never begin
one would be invisible, and use up all descriptors. So the connection is accepted without TLS, takes its place among the
others, and begins TLS then.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from fencepost.errors import ConfigurationError
from fencepost.settings import Settings
from fencepost.web.connections import HEADERS_WITHIN, OpenConnections


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """None: plain HTTP."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Also into one that is in use: connections that come later get the new certificate."""
    assert settings.tls_cert is not None, "the key belongs to a certificate"
    try:
        # OpenSSL would ask for a password at the terminal, and a service has no user there.
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise ConfigurationError(
            f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key} cannot be used: {reason}; give a certificate "
            "chain and its key without a password, both as PEM"
        ) from None


def tls_protocol_in(room: OpenConnections, http: Callable[..., Any], context: ssl.SSLContext) -> Any:
    """Makes protocols for uvicorn in place of `http`."""
    return lambda **options: Handshake(room, http(**options), context)


class Handshake(asyncio.Protocol):
    """A connection until TLS has begun. In its room it is an idle one."""

    is_idle = True
    has_asked = False

    def __init__(self, room: OpenConnections, http: asyncio.Protocol, context: ssl.SSLContext) -> None:
        self._room = room
        self._relay = Relay(http)
        self._context = context

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.pause_reading()  # what the client sends belongs to the handshake
        self._task = asyncio.get_running_loop().create_task(self._begin(), name="fencepost-tls")
        self._room.enter(self)

    def drop(self) -> None:
        self._room.leave(self)
        self._task.cancel()
        self._transport.abort()

    def answer_only_probes(self) -> None:
        self._relay.only_probes = True

    async def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport = await loop.start_tls(
                self._transport,
                self._relay,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HEADERS_WITHIN,
            )
        except OSError:  # it speaks no TLS, or took too long, or left
            self._transport.abort()
        else:
            assert transport is not None, "only a transport that was closed has none"
            self._relay.begin(transport)
        finally:
            self._room.leave(self)


class Relay(asyncio.Protocol):
    """Keeps the bytes that arrive between the end of the handshake and the moment the loop reports it."""

    only_probes = False

    def __init__(self, http: Any) -> None:
        self._http = http
        self._early = b""

    def begin(self, transport: asyncio.Transport) -> None:
        if transport.is_closing():
            return
        transport.set_protocol(self._http)
        self._http.connection_made(transport)
        if self.only_probes:
            self._http.answer_only_probes()
        if self._early:
            self._http.data_received(self._early)

    def data_received(self, data: bytes) -> None:
        self._early += data
