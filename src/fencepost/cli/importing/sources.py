"""From the words of the command line to what a reader needs: text, units, or an object of a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from fencepost.cli.migrate import apscheduler, celery
from fencepost.cli.migrate.crontab import read_crontab
from fencepost.cli.migrate.django_celery_beat import read_dump
from fencepost.cli.migrate.files import machine_zone, text_of
from fencepost.cli.migrate.kubernetes import read_cronjobs
from fencepost.cli.migrate.systemd import read_timers, units_of
from fencepost.cli.migrate.values import MOST_BYTES, Imported
from fencepost.cli.output import note
from fencepost.cli.target import attribute_of
from fencepost.errors import ConfigurationError, UsageError
from fencepost.model.triggers import zone_name

MOST_UNITS = 2000


class ReadingOptions(Protocol):
    """What the command line asks for, apart from the file."""

    @property
    def tz(self) -> str | None: ...
    @property
    def system(self) -> bool | None: ...
    @property
    def app(self) -> str | None: ...


def read(kind: str, file: str, wish: ReadingOptions) -> Imported:
    found = READERS[kind](file, wish)
    if not found.jobs and not found.left_out:
        raise ConfigurationError(f"{file} holds no entry of {kind}; name the file that does")
    return found


def _crontab(file: str, wish: ReadingOptions) -> Imported:
    path = Path(file)
    system = wish.system if wish.system is not None else path.name == "crontab" and str(path.parent) == "/etc"
    in_folder = wish.system is None and path.absolute().parent.name == "cron.d"
    return read_crontab(_text(file), wish.tz or _here(), system=system or in_folder)


def _systemd(file: str, wish: ReadingOptions) -> Imported:
    return read_timers(_units(file), wish.tz or _here())


def _kubernetes(file: str, wish: ReadingOptions) -> Imported:
    return read_cronjobs(_text(file), wish.tz or "UTC")


def _django(file: str, wish: ReadingOptions) -> Imported:
    return read_dump(_text(file), wish.tz, wish.app)


def _celery(file: str, wish: ReadingOptions) -> Imported:
    if _is_target(file):
        app = attribute_of(file)
        note(f"fencepost: imported {file.partition(':')[0]}, which ran its code")
        return celery.read_app(app, wish.app or file, wish.tz)
    return celery.read_source(_text(file), wish.tz, wish.app)


def _apscheduler(file: str, wish: ReadingOptions) -> Imported:
    if _is_target(file):
        scheduler = attribute_of(file)
        note(f"fencepost: imported {file.partition(':')[0]}, which ran its code")
        return apscheduler.read_scheduler(scheduler, file, wish.tz)
    return apscheduler.read_source(_text(file), Path(file).stem, wish.tz or _here())


READERS: dict[str, Callable[[str, ReadingOptions], Imported]] = {
    "crontab": _crontab,
    "systemd": _systemd,
    "kubernetes": _kubernetes,
    "celery": _celery,
    "apscheduler": _apscheduler,
    "django-celery-beat": _django,
}


def _is_target(file: str) -> bool:
    return ":" in file and not os.path.exists(file)


def _text(file: str) -> str:
    if file != "-":
        return text_of(Path(file))
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ConfigurationError(
            f"standard input is larger than {MOST_BYTES // 1_000_000} MB; import it in parts"
        )
    return data.decode("utf-8", "replace")


def _units(file: str) -> Mapping[str, str]:
    """A folder with timers and services, one timer with the services beside it, or what `systemctl cat` prints."""
    path = Path(file)
    if file != "-" and path.is_dir():
        return _unit_files(path, "*.timer") | _unit_files(path, "*.service")
    text = _text(file)
    if path.suffix == ".timer":
        return {path.name: text} | _unit_files(path.parent, "*.service")
    units = units_of(text)
    if not any(name.endswith(".timer") for name in units):
        raise UsageError(
            f"{file} holds no timer; name a .timer, a folder of units, or what `systemctl cat NAME.timer NAME.service` "
            "prints"
        )
    return units


def _unit_files(folder: Path, pattern: str) -> dict[str, str]:
    paths = sorted(folder.glob(pattern))
    if len(paths) > MOST_UNITS:
        raise ConfigurationError(f"{folder} holds more than {MOST_UNITS} units; import the timers one by one")
    return {path.name: text_of(path) for path in paths}


def _here() -> str:
    """The zone of this machine, which is most often the one that the old system ran on."""
    name = machine_zone()
    try:
        found = zone_name(name) if name else "UTC"
    except ConfigurationError:
        found = "UTC"
    note(f"fencepost: times are read in {found}, the zone of this machine; --tz names another")
    return found
