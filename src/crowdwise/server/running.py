"""Start the server: settings, logs, the first token, uvicorn, and limits for what uvicorn would keep in memory."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from crowdwise.data.boundary import reason
from crowdwise.errors import ParameterError
from crowdwise.server.configuration import Configuration
from crowdwise.server.service import Service
from crowdwise.server.structured_logs import configure_logs

MAX_HEAD = 65_536  # the most bytes of the address and headers of a request
MAX_PIPELINE = 16  # requests that may wait on a connection for the answer to the one before; none more is read
WORKER_SECONDS = 30
"""A worker that says nothing for so long is replaced. On a busy machine one takes longer than uvicorn's 5 to start, and
would be replaced again and again."""
UNREAD_SECONDS = 60.0  # a client that reads nothing of its answers for so long is cut off


class LimitedProtocol(HttpToolsProtocol):
    """Headers that do not end, requests that do not wait for answers and answers that are not read are refused:
    httptools and uvicorn would keep all of them in memory."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head: int | None = 0  # bytes of the head that have come; nothing while a body comes
        self._unread: asyncio.TimerHandle | None = None

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINE:
            raise ValueError("too many requests wait on this connection")
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline and not self.transport.is_closing():  # uvicorn would read more of them
            self.flow.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The headers are larger than {MAX_HEAD} bytes.")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._read()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._read()
        self.pipeline.clear()
        super().connection_lost(exc)

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


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
    factory = f"{__package__}.app:{APPLICATION}"
    uvicorn.run(factory, factory=True, workers=configuration.workers, **uvicorn_options(configuration))


def uvicorn_options(configuration: Configuration) -> dict[str, Any]:
    """How uvicorn reads requests. What a client says of its address is believed of the named proxies alone."""
    return {
        "host": configuration.host, "port": configuration.port, "ssl_certfile": configuration.tls_certificate or None,
        "ssl_keyfile": configuration.tls_key or None, "log_config": None, "access_log": False,
        "proxy_headers": bool(configuration.trusted_proxies), "forwarded_allow_ips": configuration.trusted_proxies,
        "timeout_graceful_shutdown": 20, "timeout_keep_alive": 15, "timeout_worker_healthcheck": WORKER_SECONDS,
        "server_header": False, "http": LimitedProtocol,
    }  # fmt: skip
