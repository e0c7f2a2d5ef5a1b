"""Images, recordings and texts of items: files of the media folder and uploads of a campaign, served by signed links
that expire. Other files, and what a link in the folder leads out of it to, are not served.

An item names a file (``photos/1.jpg``); the store keeps ``media:photos/1.jpg``, pages get a link. Addresses are checked
when items are uploaded: of a file that is not there, or of an origin that is not allowed, nothing would be shown.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote, urlsplit

from crowdwise.data.folders import write_whole
from crowdwise.errors import InputError, suggestion
from crowdwise.server.access_tokens import Signer
from crowdwise.server.configuration import Configuration
from crowdwise.store import steady_clock
from crowdwise.store.answer_forms import SIDES
from crowdwise.store.database import main_of, private_folder

KINDS = {
    "image": {
        ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
        ".avif": "image/avif",
    },
    "audio": {
        ".mp3": "audio/mpeg", ".wav": "audio/wav", ".ogg": "audio/ogg", ".m4a": "audio/mp4", ".flac": "audio/flac",
        ".opus": "audio/ogg",
    },
    "file": {".txt": "text/plain; charset=utf-8"},
}  # fmt: skip
"""Part of a payload -> endings of its files, and their media types. SVG is not among them: it may hold scripts."""
MEDIA = "media:"
TYPES = {ending: media for kinds in KINDS.values() for ending, media in kinds.items()}
MOST_LETTERS = 200  # bytes of the name of a file
CHUNK = 2**20
MOST_NAMES = 200_000  # files of the folder that are listed


def kind_of(name: str) -> str | None:
    """The part of a payload that shows a file, by its ending."""
    ending = PurePosixPath(name).suffix.lower()
    return next((kind for kind, endings in KINDS.items() if ending in endings), None)


class Media:
    """The files of a server."""

    def __init__(self, configuration: Configuration, signer: Signer) -> None:
        self.folder = Path(configuration.media).resolve() if configuration.media else None
        if self.folder is not None and not self.folder.is_dir():
            raise InputError(f"media={configuration.media!r} is not a folder.")
        self.uploads, self.signer = Path(configuration.data).resolve() / "media", signer
        self.seconds = 3600.0 * configuration.media_hours
        self.origins = configuration.origins

    def find(self, campaign: str, name: str) -> Path | None:
        """The file with a name, of the uploads of the campaign or of the folder; nothing where it may not be shown."""
        if PurePosixPath(name).suffix.lower() not in TYPES or "\0" in name:
            return None
        for root in filter(None, (self.uploads / campaign, self.folder)):
            with suppress(OSError, ValueError):
                path = (root / name).resolve()
                if path.is_relative_to(root) and path.is_file():
                    return path
        return None

    def names(self, campaign: str, under: str = "") -> Iterator[str]:
        """The names of files that items can show, in order."""
        seen = set()
        for root in filter(None, (self.uploads / campaign, self.folder)):
            for folder, folders, files in os.walk(root):
                folders.sort()
                for file in sorted(files):
                    name = (Path(folder) / file).relative_to(root).as_posix()
                    if name.startswith(under) and name not in seen and self.find(campaign, name) is not None:
                        seen.add(name)
                        yield name
                    if len(seen) >= MOST_NAMES:
                        return

    def save(self, campaign: str, name: str, content: IO[bytes]) -> str:
        """Keep an uploaded file; its name, which has no folders. What people have seen is not exchanged."""
        name = PurePosixPath(name.replace("\\", "/")).name
        if kind_of(name) is None or name.startswith("."):
            raise InputError(f"The file {name!r} is none of {', '.join(sorted(TYPES))}. It was not kept.")
        if len(name.encode()) > MOST_LETTERS:
            raise InputError(f"The name {name!r:.50} is longer than {MOST_LETTERS} bytes. The file was not kept.")
        path = self.uploads / campaign / name
        private_folder(path.parent)
        if path.exists() and not _same(path, content):
            raise InputError(f"There is another file {name!r} already: give this one another name. It was not kept.")
        if path.exists():
            return name

        def copy(target: str) -> None:
            with open(target, "wb") as file:
                shutil.copyfileobj(content, file, CHUNK)

        write_whole(copy, path, private=True)
        return name

    def forget(self, campaign: str) -> None:
        """Remove the uploads of a campaign that was deleted."""
        shutil.rmtree(self.uploads / campaign, ignore_errors=True)

    def link(self, campaign: str, name: str) -> str:
        """An address of a file that holds for a while. It stays the same for some time, so that browsers keep it."""
        step = self.seconds / 2.0
        until = int((steady_clock.now() // step + 3.0) * step)
        signature = self.signer.sign("media", f"{campaign}/{until}/{name}")
        return f"/media/{campaign}/{until}/{signature}/{quote(name)}"

    def opened(self, campaign: str, until: int, signature: str, name: str) -> Path | None:
        """The file that a link leads to; nothing where the link is not ours, or no longer."""
        good = self.signer.check("media", f"{campaign}/{until}/{name}", signature)
        return self.find(campaign, name) if good and until > steady_clock.now() else None

    def signed(self, campaign: str, payload: dict[str, Any]) -> dict[str, Any]:
        """A payload with links for its files."""

        def sign(_: str, value: Any) -> Any:
            mine = isinstance(value, str) and value.startswith(MEDIA)
            return self.link(main_of(campaign), value.removeprefix(MEDIA)) if mine else value

        return _each(payload, sign)

    def checked(self, campaign: str, item: Any, payload: dict[str, Any]) -> dict[str, Any]:
        """A payload whose files are there and whose addresses pages can load; else an error."""

        def check(kind: str, value: Any) -> Any:
            if not isinstance(value, str) or not value or value.startswith(("/static/", "data:")):
                return value
            scheme = value.partition(":")[0].lower() if ":" in value else "media"
            if scheme != "media":  # which schemes pages load is checked with the item
                origin = "{0.scheme}://{0.netloc}".format(urlsplit(value))
                if self.origins and scheme == "https" and origin not in self.origins:
                    raise InputError(
                        f"The {kind} of item {item!r} is at {origin}, and this server shows those of "
                        f"{', '.join(self.origins)} alone (setting media_origins). Nothing was added."
                    )
                return value
            name = value.removeprefix(MEDIA)
            if self.find(campaign, name) is None or kind_of(name) != kind:
                near = suggestion(name, list(self.names(campaign))[:10_000])
                where = f"in {self.folder}" if self.folder else "(there is no media folder: crowdwise serve --media)"
                raise InputError(
                    f"The {kind} of item {item!r} is {name!r}, and there is no such file {where}, nor among the "
                    f"uploads.{near} Nothing was added."
                )
            return f"{MEDIA}{name}"

        return _each(payload, check)


def _same(path: Path, content: IO[bytes]) -> bool:
    """Whether a file holds this content; neither is read as a whole."""
    with path.open("rb") as file:
        while (part := content.read(CHUNK)) == file.read(CHUNK):
            if not part:
                return True
    return False


def _each(payload: dict[str, Any], change: Callable[[str, Any], Any]) -> dict[str, Any]:
    """A payload, with its sides and options, where all that is loaded by an address is changed."""
    out = {name: change(name, value) if name in KINDS else value for name, value in payload.items()}
    for side in SIDES:
        if isinstance(out.get(side), dict):
            out[side] = _each(out[side], change)
    if isinstance(out.get("options"), list):
        out["options"] = [_each(one, change) if isinstance(one, dict) else one for one in out["options"]]
    return out
