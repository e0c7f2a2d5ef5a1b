"""Languages of the pages: catalogues in ``static/messages``, one JSON file for each, from the English text to another.

To add a language, add its file: ``_name`` is what the menu calls it, ``_dir`` is ``rtl`` where it is written from right
to left. A text that a file lacks stays English; a test says which.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request

FOLDER = Path(__file__).parent / "static" / "messages"
COOKIE = "crowdwise-language"
DEFAULT = "en"


@cache
def catalogues() -> dict[str, dict[str, str]]:
    """Language -> its texts."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def language_of(request: Request) -> str:
    """The language of a page: asked for by ``lang``, else chosen before, else the first that the browser takes."""
    wanted = [request.query_params.get("lang", ""), request.cookies.get(COOKIE, "")]
    accepted = request.headers.get("accept-language", "").split(",")
    wanted += [part.partition(";")[0].strip() for part in accepted]
    found = (tag.lower().split("-")[0] for tag in wanted)
    return next((tag for tag in found if tag in catalogues()), DEFAULT)


def texts_of(request: Request) -> dict[str, Any]:
    """What templates need to speak a language: ``t`` for texts, and the catalogue for the scripts of the page."""
    language = language_of(request)
    catalogue = catalogues()[language]

    def t(text: str, **values: Any) -> str:
        said = catalogue.get(text, text)
        for name, value in values.items():
            said = said.replace(f"{{{name}}}", str(value))
        return said

    names = {tag: one["_name"] for tag, one in catalogues().items()}
    return {"t": t, "lang": language, "dir": catalogue.get("_dir", "ltr"), "messages": catalogue, "languages": names}
