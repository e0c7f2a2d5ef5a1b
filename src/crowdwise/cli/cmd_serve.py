"""``crowdwise serve``: campaigns behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from crowdwise.cli.options import option
from crowdwise.cli.outputs import say
from crowdwise.errors import ExtraError

__all__ = ["serve"]

ConfigOption = Annotated[Path | None, option("--config", help="A TOML file of settings.")]
DataOption = Annotated[str | None, option("--data", help="Folder for the database (SQLite).")]
DatabaseOption = Annotated[str | None, option("--database", help="postgresql://user:password@host/name.")]
HostOption = Annotated[str | None, option("--host", help="Address to listen on.")]
PortOption = Annotated[int | None, option("--port", help="Port to listen on.")]
WorkersOption = Annotated[int | None, option("--workers", help="Processes that answer requests.")]
CertificateOption = Annotated[str | None, option("--tls-certificate", help="PEM file of the certificate.")]
KeyOption = Annotated[str | None, option("--tls-key", help="PEM file of its key.")]
BaseOption = Annotated[str | None, option("--base-url", help="Address that people see, behind a proxy.")]
LogOption = Annotated[str | None, option("--log-format", help="json or text.")]


def serve(
    config: ConfigOption = None, data: DataOption = None, database: DatabaseOption = None, host: HostOption = None,
    port: PortOption = None, workers: WorkersOption = None, tls_certificate: CertificateOption = None,
    tls_key: KeyOption = None, base_url: BaseOption = None, log_format: LogOption = None,
) -> None:  # fmt: skip
    """Serve campaigns: an API, a page to label on and a page to watch.

    Every setting can also be given in a TOML file or as a variable CROWDWISE_NAME; see the page about the server.

    Example: `crowdwise serve --port 8321`
    """
    try:
        from crowdwise.server.running import serve as run
    except ImportError as error:
        raise ExtraError("The server needs more packages: pip install 'crowdwise[serve]'.") from error
    from crowdwise.server.configuration import load_configuration

    given = {
        "data": data, "database": database, "host": host, "port": port, "workers": workers,
        "tls_certificate": tls_certificate, "tls_key": tls_key, "base_url": base_url, "log_format": log_format,
    }  # fmt: skip
    run(load_configuration(given, config), say)
