"""`email(to, sender=…, host=…)`: a plain text message by SMTP."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from fencepost.errors import ConfigurationError, DeliveryFailed
from fencepost.model.notices import ALERTS, Causes, Notice
from fencepost.notify.http import LOCAL, certificates, described
from fencepost.notify.sending import checked_name, checked_seconds, in_thread, is_text, shown
from fencepost.notify.signing import ID_HEADER
from fencepost.notify.webhook import digest_id
from fencepost.notify.words import Message, message_for

if TYPE_CHECKING:
    from email.message import EmailMessage
    from smtplib import SMTP

Security = Literal["starttls", "tls", "none"]
PORTS: Mapping[str, int] = {"starttls": 587, "tls": 465, "none": 25}
TIMEOUT = 30.0
"""Seconds for the whole dialogue. Servers that check senders answer slowly on purpose."""
MOST_RECIPIENTS = 50
LONGEST_SUBJECT = 200

_ADDRESS = r"[^\s@<>()\[\],;:\\\"]{1,64}@[^\s@<>()\[\],;:\\\"]{1,190}"
log = logging.getLogger("fencepost.notify")


def email(
    to: str | Sequence[str],
    *,
    sender: str,
    host: str,
    port: int | None = None,
    user: str | None = None,
    password: str | None = None,
    security: Security = "starttls",
    name: str = "email",
    timeout: object = TIMEOUT,
) -> Email:
    """`security`: `starttls` (port 587), `tls` from the first byte (465), or `none` (25), which takes a password only
    to this machine."""
    recipients = (to,) if isinstance(to, str) else tuple(to)
    if not 1 <= len(recipients) <= MOST_RECIPIENTS:
        raise ConfigurationError(f"to must hold 1 to {MOST_RECIPIENTS} addresses")
    for address in (*recipients, sender):
        if not is_text(address, _ADDRESS):
            raise ConfigurationError(f"{address!r} is no plain e-mail address, such as ops@example.com")
    if not is_text(host, r"[A-Za-z0-9._:-]{1,253}"):
        raise ConfigurationError(
            "host must be the name or address of a mail server, such as smtp.example.com"
        )
    if security not in get_args(Security):
        raise ConfigurationError(f"security is {security!r}; give one of {', '.join(get_args(Security))}")
    if port is not None and (type(port) is not int or not 0 < port < 65_536):
        raise ConfigurationError(f"port is {port!r}; give 1 to 65535, or leave it out")
    if (user is None) != (password is None):
        raise ConfigurationError("user and password belong together: give both, or neither")
    if password is not None and security == "none" and host not in LOCAL:
        raise ConfigurationError(
            'security="none" would send the password in the clear; use "starttls" or "tls"'
        )
    server = MailServer(host, port or PORTS[security], security, user, password, checked_seconds(timeout))
    return Email(checked_name(name), recipients, sender, server)


@dataclass(frozen=True)
class MailServer:
    host: str
    port: int
    security: Security
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    timeout: float = TIMEOUT


@dataclass(frozen=True)
class Email:
    name: str
    to: tuple[str, ...]
    sender: str
    server: MailServer
    causes: Causes = ALERTS

    async def deliver(self, notices: Sequence[Notice]) -> None:
        sending = _Sending(self.server, self._mail(notices))
        turned_down = await in_thread(sending.run, self.server.timeout, sending.abort)
        log.debug("%s takes the message", self.server.host)
        if turned_down:
            log.warning(
                "channel %s: %s took the message but refused %d of %d recipients: %s",
                self.name,
                self.server.host,
                len(turned_down),
                len(self.to),
                ", ".join(turned_down),
            )

    def _mail(self, notices: Sequence[Notice]) -> EmailMessage:
        from email.message import EmailMessage
        from email.policy import SMTP
        from email.utils import format_datetime

        message = message_for(notices)
        mail = EmailMessage(policy=SMTP)
        mail["Subject"] = _one_line(f"[fencepost] {message.subject}")[:LONGEST_SUBJECT]
        mail["From"] = self.sender
        mail["To"] = ", ".join(self.to)
        mail["Date"] = format_datetime(max(each.at for each in notices))
        mail["Message-ID"] = f"<{re.sub(r'[^A-Za-z0-9.-]', '-', digest_id(notices))}@fencepost>"
        mail["Auto-Submitted"] = "auto-generated"  # no answer of an absent reader
        for notice in notices:
            mail[ID_HEADER] = _one_line(notice.id)
        mail.set_content(_text(message))
        return mail


def _text(message: Message) -> str:
    parts = ["\n".join((f"{message.subject}.", "", *message.lines))]
    if message.output:
        parts.append(f"The end of its output:\n\n{message.output.rstrip()}")
    if message.link:
        parts.append(message.link)
    return "\n\n".join(parts) + "\n"


def _one_line(text: str) -> str:
    """A line break would begin another header."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


class _Sending:
    def __init__(self, server: MailServer, mail: EmailMessage) -> None:
        self._server, self._mail = server, mail
        self._smtp: SMTP | None = None

    def run(self) -> list[str]:
        """The recipients that the server refused while it took others."""
        from smtplib import SMTPException

        smtp = self._smtp = self._client()
        try:
            self._log_in(smtp)
            refused = sorted(smtp.send_message(self._mail))
            with suppress(OSError, SMTPException):
                smtp.quit()
            return refused
        except (OSError, SMTPException) as error:
            raise self._failed(error) from None
        except ValueError as error:  # such as an address with letters that this server cannot take
            raise DeliveryFailed(f"{self._server.host}: {self._said(str(error))}") from None
        finally:
            smtp.close()

    def abort(self) -> None:
        """From another thread: whatever waits for the socket ends with an error."""
        with suppress(OSError, AttributeError):
            self._smtp.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    def _client(self) -> SMTP:
        from smtplib import SMTP, SMTP_SSL

        server, own_name = self._server, socket.gethostname()
        if server.security == "tls":
            return SMTP_SSL(local_hostname=own_name, timeout=server.timeout, context=certificates())
        return SMTP(local_hostname=own_name, timeout=server.timeout)

    def _log_in(self, smtp: SMTP) -> None:
        server = self._server
        smtp._host = server.host  # type: ignore[attr-defined]  # whose certificate it must be; __init__ alone sets it
        smtp.connect(server.host, server.port)
        if server.security == "starttls":
            smtp.starttls(context=certificates())
        if server.user is not None and server.password is not None:
            smtp.login(server.user, server.password)

    def _failed(self, error: Exception) -> DeliveryFailed:
        from smtplib import SMTPDataError, SMTPRecipientsRefused, SMTPResponseException

        host = self._server.host
        if isinstance(error, SMTPRecipientsRefused):
            code, said = next(iter(error.recipients.values()))
            return DeliveryFailed(f"{host} refuses every recipient: {code} {self._said(said)}")
        if isinstance(error, SMTPResponseException):
            refused = isinstance(error, SMTPDataError) and error.smtp_code >= 500
            text = f"{host} answers {error.smtp_code} {self._said(error.smtp_error)}"
            return DeliveryFailed(text, permanent=refused)
        if (
            type(error).__module__ == "smtplib"
        ):  # the library's words: what the server lacks, or that it hung up
            return DeliveryFailed(f"{host}: {self._said(str(error))}")
        return DeliveryFailed(f"{host} cannot be reached: {described(error)}")

    def _said(self, text: bytes | str) -> str:
        said = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return shown(said, (self._server.password or "",))
