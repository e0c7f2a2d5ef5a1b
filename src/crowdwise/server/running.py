"""Start the server: settings, logs, the first token, uvicorn."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import uvicorn

from crowdwise.data.boundary import reason
from crowdwise.errors import ParameterError
from crowdwise.server.configuration import Configuration
from crowdwise.server.http_protocol import LimitedProtocol
from crowdwise.server.service import Service
from crowdwise.server.structured_logs import configure_logs

APPLICATION = "create_from_environment"


def check_address(configuration: Configuration) -> None:
    """An error where the address cannot be listened on, before a store is made and its token is shown."""
    host, port = configuration.host, configuration.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise ParameterError(
            f"The server cannot listen on {host}, port {port}: {reason(error)}. Give others with --host and --port."
        ) from error


def serve(configuration: Configuration, say: Callable[[str], None]) -> None:
    """Serve until a signal ends it; what was acknowledged is written before that."""
    configure_logs(configuration.log_format)
    os.umask(0o077)  # whatever the server and its workers write is for this user alone
    check_address(configuration)
    service = Service(configuration)
    try:
        secret = service.first_token()
    finally:
        service.close()
    say(f"crowdwise serves on {configuration.address}")
    if secret is not None:
        say(f"Admin token, shown only now: {secret}")
        say(f"Sign in with it on {configuration.address}/login")
    os.environ |= configuration.environment()
    uvicorn.run(
        f"{__package__}.app:{APPLICATION}", factory=True, host=configuration.host, port=configuration.port,
        workers=configuration.workers, ssl_certfile=configuration.tls_certificate or None,
        ssl_keyfile=configuration.tls_key or None, log_config=None, access_log=False,
        proxy_headers=bool(configuration.trusted_proxies), forwarded_allow_ips=configuration.trusted_proxies,
        timeout_graceful_shutdown=20, timeout_keep_alive=15, server_header=False, http=LimitedProtocol,
    )  # fmt: skip
