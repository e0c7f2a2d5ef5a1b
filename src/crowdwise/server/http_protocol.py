"""HTTP as uvicorn reads it with httptools, with a limit for what comes before the body."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 65_536
"""The most bytes of the address and headers of a request."""

__all__ = ["MAX_HEAD", "LimitedHeads"]


class LimitedHeads(HttpToolsProtocol):
    """A request whose headers do not end is refused: httptools would keep all of them in memory."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head: int | None = 0
        """Bytes of the head that have come; nothing while a body comes."""

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(f"The headers are larger than {MAX_HEAD} bytes.")
