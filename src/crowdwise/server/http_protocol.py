"""HTTP as uvicorn reads it with httptools, with limits for what it would keep in memory."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 65_536
"""The most bytes of the address and headers of a request."""
MAX_PIPELINE = 16
"""Requests that may wait on a connection for the answer to the one before; none more is read."""
UNREAD_SECONDS = 60.0
"""A client that reads nothing of its answers for so long is cut off."""


class LimitedProtocol(HttpToolsProtocol):
    """Headers that do not end, requests that do not wait for answers and answers that are not read are refused:
    httptools and uvicorn would keep all of them in memory."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head: int | None = 0
        """Bytes of the head that have come; nothing while a body comes."""
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
