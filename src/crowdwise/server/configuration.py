"""The settings of the server: from the command line, else the environment, else a TOML file, else the default."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from crowdwise.errors import ParameterError, ReadError, either, suggestion
from crowdwise.server.structured_logs import FORMATS

PREFIX = "CROWDWISE_SERVE_"


def setting(default: Any, help_: str, *, minimum: float | None = None) -> Any:
    """A field with what the table in the documentation says about it."""
    return field(default=default, metadata={"help": help_, "minimum": minimum})


@dataclass(frozen=True)
class Configuration:
    """All settings. The variable of ``rate_limit`` is ``CROWDWISE_SERVE_RATE_LIMIT``; those that are set most have an
    option as well (``--log-format``)."""

    data: str = setting("crowdwise-data", "Folder for the SQLite database, snapshots and the key of sessions; 0700.")
    database: str = setting("", "postgresql://user:password@host/name; empty: SQLite in the data folder.")
    key_file: str = setting(
        "", "File of the key that signs sessions, the same for all machines; empty: session.key in the data folder."
    )
    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 for all.")
    port: int = setting(8321, "Port to listen on.", minimum=0)
    workers: int = setting(1, "Processes that answer requests.", minimum=1)
    tls_certificate: str = setting("", "PEM file of the certificate, for HTTPS without a proxy.")
    tls_key: str = setting("", "PEM file of its key.")
    base_url: str = setting("", "Address that people see, where a proxy is in front: https://labels.example.org.")
    trusted_proxies: str = setting("", "Addresses of proxies whose X-Forwarded-For and -Proto are believed; * for all.")
    session_hours: float = setting(24.0 * 14, "Hours until a browser has to follow the link again.", minimum=0.01)
    rate_limit: float = setting(300.0, "Requests per second of one token or session; 0: no limit.", minimum=0)
    login_limit: float = setting(5.0, "Failed logins per minute from one address; 0: no limit.", minimum=0)
    max_body: int = setting(8_000_000, "Bytes of a request, uploads of items aside.", minimum=1)
    max_upload: int = setting(512_000_000, "Bytes of an upload of items.", minimum=1)
    body_seconds: float = setting(30.0, "Seconds to wait for the next part of a request body.", minimum=0.01)
    media: str = setting("", "Folder of images, recordings and texts that items name; they get links that expire.")
    media_hours: float = setting(2.0, "Hours for which such a link holds, at least.", minimum=0.01)
    media_origins: str = setting(
        "", "Origins whose images and recordings items may show, comma-separated; empty: every https address."
    )
    cors_origins: str = setting("", "Origins of other sites whose scripts may call the API, comma-separated.")
    private_webhooks: bool = setting(False, "Allow webhooks to private and loopback addresses.")
    sample: bool = setting(True, "Offer a sample campaign on the first page.")
    log_format: str = setting("auto", "json (one object a line), text, or auto: text on a terminal, else json.")

    def __post_init__(self) -> None:
        for f in fields(self):
            value, least = getattr(self, f.name), f.metadata["minimum"]
            if least is not None and not value >= least:
                raise ParameterError(f"{f.name}={value!r}: expected at least {least:g}.")
        if self.port > 65_535:
            raise ParameterError(f"port={self.port}: expected at most 65535.")
        if self.log_format not in FORMATS:
            raise ParameterError(f"log_format={self.log_format!r}: expected {either(FORMATS)}.")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ParameterError("TLS needs both files: tls_certificate and tls_key.")
        if self.database and not self.database.startswith(("postgresql://", "postgres://", "sqlite:///")):
            raise ParameterError("database: expected postgresql://user:password@host/name or sqlite:///FILE.")

    @property
    def url(self) -> str:
        """The address of the store for SQLAlchemy."""
        if not self.database:
            return f"sqlite:///{(Path(self.data) / 'server.db').resolve()}"
        return re.sub("^postgres(ql)?://", "postgresql+psycopg://", self.database)

    @property
    def address(self) -> str:
        """Where people reach the server."""
        if self.base_url:
            return self.base_url.rstrip("/")
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls_certificate else 'http'}://{host}:{self.port}"

    @property
    def origins(self) -> tuple[str, ...]:
        """Origins whose images and recordings items may show; empty: every https address."""
        return tuple(one.strip().rstrip("/") for one in self.media_origins.split(",") if one.strip())

    @property
    def secure(self) -> bool:
        """Whether browsers reach the server by HTTPS, so that cookies are only sent over it."""
        return self.address.startswith("https://")

    def environment(self) -> dict[str, str]:
        """The settings as variables, for worker processes."""
        return {f"{PREFIX}{f.name.upper()}": str(getattr(self, f.name)) for f in fields(self)}


def load_configuration(
    options: Mapping[str, Any] | None = None, file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Configuration:  # fmt: skip
    """The settings, of which ``given`` counts most, then the environment, then the file."""
    values = {} if file is None else _from_file(Path(file))
    variables = os.environ if environment is None else environment
    for f in fields(Configuration):
        if f"{PREFIX}{f.name.upper()}" in variables:
            values[f.name] = variables[f"{PREFIX}{f.name.upper()}"]
    values |= {name: value for name, value in (options or {}).items() if value is not None}
    return Configuration(**{name: _converted(name, value) for name, value in values.items()})


def _from_file(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReadError(f"{path} could not be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ReadError(f"{path} is not TOML: {error}.") from error
    known = [f.name for f in fields(Configuration)]
    for name in values:
        if name not in known:
            raise ParameterError(f"{path}: there is no setting {name!r}.{suggestion(name, known)}")
    return values


def _converted(name: str, value: Any) -> Any:
    """A value as the setting has it: text of the environment becomes a number or a boolean."""
    kind: Any = type(next(f.default for f in fields(Configuration) if f.name == name))
    if type(value) is kind:
        return value
    try:
        if kind is bool:
            return _BOOLEANS[str(value).strip().lower()]
        if not isinstance(value, str) and not (kind is float and type(value) is int):
            raise ValueError
        return kind(value)
    except (KeyError, ValueError, TypeError):
        raise ParameterError(f"{name}={value!r}: expected {_WORDS[kind]}.") from None


_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
