"""E-mail, to a real SMTP server."""

from __future__ import annotations

import logging
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope

from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.notify import email, http
from tests.notify.samples import notice
from tests.notify.test_webhook import trickling
from tests.servers.certificates import certificate

PASSWORD = "pa55-word-of-mail"


class Box:
    """What the server took; what it shall answer otherwise."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.refused: dict[str, str] = {}
        self.answer = "250 taken"

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Envelope, address: str, options: Any
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=default)
        self.mails.append(mail)
        self.recipients.append(envelope.rcpt_tos)
        return self.answer


def login(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    known = (data.login, data.password) == (b"ops", PASSWORD.encode())
    return AuthResult(success=known, handled=False)


@contextmanager
def served(box: Box, **given: Any) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(box, hostname="127.0.0.1", port=port, **given)
    controller.start()
    try:
        yield port
    finally:
        controller.stop()


def channel(port: int, to: Any = "ops@example.com", **given: Any) -> Any:
    options = {"security": "none"} | given
    return email(to, sender="fencepost@example.com", host="127.0.0.1", port=port, **options)


async def test_a_notice_is_a_mail() -> None:
    box = Box()
    with served(box) as port:
        to = ["ops@example.com", "dev@example.com"]
        await channel(port, to).deliver([notice(error="Zürich: no rows")])
    [mail] = box.mails
    assert box.recipients == [to]
    assert mail["Subject"] == "[fencepost] report failed"
    assert mail["From"] == "fencepost@example.com"
    assert mail["To"] == "ops@example.com, dev@example.com"
    assert mail["Message-ID"] == "<n-failed@fencepost>"
    assert mail["Fencepost-Id"] == "n-failed"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Date"] == "Tue, 17 Nov 2026 02:31:04 +0000"
    text = mail.get_content().replace("\r\n", "\n")
    assert "report failed." in text
    assert "Error: Zürich: no rows" in text
    assert "The end of its output:\n\nreading\nno rows" in text
    assert text.strip().endswith(
        "https://ops.example.com/fencepost/fires/report%402026-11-17T02%3A30%3A00.000000Z"
    )


async def test_a_digest_is_one_mail_with_every_id() -> None:
    box = Box()
    with served(box) as port:
        await channel(port).deliver([notice(id=f"n-{number}") for number in range(3)])
    [mail] = box.mails
    assert mail.get_all("Fencepost-Id") == ["n-0", "n-1", "n-2"]
    assert mail["Subject"] == "[fencepost] 3 notices of one job"


async def test_text_from_a_job_adds_no_header() -> None:
    box = Box()
    with served(box) as port:
        await channel(port).deliver([notice("x\r\nBcc: evil@example.com", id="n\r\nX-Evil: 1")])
    [mail] = box.mails
    assert mail["Bcc"] is None
    assert mail["X-Evil"] is None
    assert box.recipients == [["ops@example.com"]]


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ssl.SSLContext]:
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made by openssl")
    found = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(found["tls_cert"], found["tls_key"])
    monkeypatch.setenv("SSL_CERT_FILE", found["tls_cert"])
    http.certificates.cache_clear()
    yield context
    http.certificates.cache_clear()


@pytest.mark.filterwarnings(
    "ignore:Requiring AUTH"
)  # the server does not count TLS from the first byte as TLS
@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_with_tls_and_a_login(certified: ssl.SSLContext, security: str) -> None:
    box = Box()
    options: dict[str, Any] = {"authenticator": login, "auth_required": True}
    if security == "tls":
        options |= {"ssl_context": certified, "auth_require_tls": False}
    else:
        options |= {"tls_context": certified, "require_starttls": True}
    with served(box, **options) as port:
        await channel(port, security=security, user="ops", password=PASSWORD).deliver([notice()])
        wrong = channel(port, security=security, user="ops", password="wrong-pa55word")
        with pytest.raises(DeliveryFailed, match="127.0.0.1 answers 535") as caught:
            await wrong.deliver([notice()])
        assert not caught.value.permanent
        assert "wrong-pa55word" not in repr(caught.value) + repr(wrong)
    assert len(box.mails) == 1


async def test_a_certificate_that_nobody_signed_is_refused(
    certified: ssl.SSLContext, monkeypatch: Any
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    http.certificates.cache_clear()
    box = Box()
    with (
        served(box, tls_context=certified) as port,
        pytest.raises(DeliveryFailed, match="self-signed certificate"),
    ):
        await channel(port, security="starttls").deliver([notice()])
    assert box.mails == []


async def test_a_server_without_starttls_gets_nothing() -> None:
    box = Box()
    with served(box) as port, pytest.raises(DeliveryFailed, match="STARTTLS extension not supported"):
        await channel(port, security="starttls").deliver([notice()])
    assert box.mails == []


async def test_what_the_server_refuses() -> None:
    box = Box()
    with served(box) as port:
        box.answer = "554 looks like spam"
        with pytest.raises(DeliveryFailed, match="answers 554 looks like spam") as caught:
            await channel(port).deliver([notice()])
        assert caught.value.permanent
        box.answer = "451 try later"
        with pytest.raises(DeliveryFailed, match="answers 451 try later") as caught:
            await channel(port).deliver([notice()])
        assert not caught.value.permanent
        box.refused = {"ops@example.com": "550 no such user"}
        with pytest.raises(DeliveryFailed, match="refuses every recipient: 550 no such user") as caught:
            await channel(port).deliver([notice()])
        assert not caught.value.permanent


async def test_one_recipient_of_two_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """The other has the mail: sending it again would only repeat it there."""
    box = Box()
    box.refused = {"gone@example.com": "550 no such user"}
    with served(box) as port, caplog.at_level(logging.WARNING, "fencepost"):
        await channel(port, ["ops@example.com", "gone@example.com"]).deliver([notice()])
    assert box.recipients == [["ops@example.com"]]
    assert "refused 1 of 2 recipients: gone@example.com" in caplog.text


async def test_a_server_that_never_ends_its_greeting_costs_no_thread() -> None:
    with trickling(b"220-") as (port, gone):
        with pytest.raises(DeliveryFailed, match="no answer within 0.3 s"):
            await channel(port, timeout=0.3).deliver([notice()])
        assert gone.wait(10)


async def test_a_server_that_is_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(DeliveryFailed, match="127.0.0.1 cannot be reached: Connection refused"):
        await channel(port).deliver([notice()])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"to": []}, "1 to 50 addresses"),
        ({"to": "ops@example.com\nBcc: x@y.z"}, "no plain e-mail address"),
        ({"sender": "Ops <ops@example.com>"}, "no plain e-mail address"),
        ({"security": "ssl"}, "starttls, tls, none"),
        ({"port": 0}, "1 to 65535"),
        ({"user": "ops"}, "belong together"),
        ({"user": "ops", "password": PASSWORD, "security": "none"}, "in the clear"),
        ({"host": "smtp host"}, "mail server"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], said: str) -> None:
    values: dict[str, Any] = {"to": "ops@example.com", "sender": "f@example.com", "host": "smtp.example.com"}
    with pytest.raises(ConfigurationError, match=said) as caught:
        email(**(values | given))
    assert PASSWORD not in str(caught.value)
