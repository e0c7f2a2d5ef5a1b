"""The time of the server: that of the machine, which never goes back while the process runs: questions would stay out,
and tokens and sessions that have expired would be valid again."""

from __future__ import annotations

import threading
import time


class SteadyClock:
    """Seconds since 1970: forward with the clock of the machine, and at the pace of the monotonic one otherwise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wall, self._monotonic = time.time(), time.monotonic()

    def now(self) -> float:
        with self._lock:
            monotonic = time.monotonic()
            self._wall = max(time.time(), self._wall + monotonic - self._monotonic)
            self._monotonic = monotonic
            return self._wall


now = SteadyClock().now  # the time of this process
