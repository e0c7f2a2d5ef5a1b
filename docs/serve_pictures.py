"""Draw the pages of ``crowdwise serve`` for the documentation: a server, a simulated crowd, a browser.

``python docs/serve_pictures.py`` writes ``docs/assets/serve-label-360-light.webp`` and so on. Needs Chromium and
playwright.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any

import httpx
import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SIZES = list(itertools.product((360, 1280), ("light", "dark")))
CLASSES = ["negative", "neutral", "positive"]
WHERE = ("soup", "bread", "garden", "coffee", "waiter", "room", "menu", "terrace", "cake", "view")
SAID = {
    "negative": (
        "The {} was a disappointment.", "Never again: the {} spoiled the evening.", "I have seen better than this {}.",
        "The {}? I would rather forget it.",
    ),
    "neutral": (
        "The {} is mentioned on the sign.", "There is one {}.", "We asked about the {} first.",
        "The {} is the same as last year.",
    ),
    "positive": (
        "I came for the {} and stayed.", "The {} made our day.", "What a lovely {}!", "Go there for the {} alone.",
    ),
}  # fmt: skip
CROWD = {"ada": 0.92, "ben": 0.85, "cleo": 0.88, "dan": 0.7, "eve": 0.8, "finn": 0.34, "gil": 0.78, "hana": 0.9}
"""The accuracy of each annotator; finn guesses, and is fast."""


@contextmanager
def served(folder: Path) -> Iterator[httpx.Client]:
    """A server of its own, and a client of its admin."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "crowdwise", "serve", "--port", str(port)]
    said = folder / "said"
    with said.open("w") as out:
        process = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, env=os.environ | {"PYTHONUNBUFFERED": "1"}
        )
    try:
        secret, until = None, time.monotonic() + 60
        while secret is None and time.monotonic() < until:
            time.sleep(0.1)
            secret = re.search(r"cw_\S+", said.read_text())
        assert secret is not None, said.read_text()
        headers = {"Authorization": f"Bearer {secret[0]}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
            for _ in range(600):
                try:
                    client.get("/readyz").raise_for_status()
                    break
                except httpx.HTTPError:
                    time.sleep(0.1)
            yield client
    finally:
        process.terminate()
        process.wait()


def campaign(client: httpx.Client) -> str:
    """A campaign with votes that came over some seconds."""

    def post(path: str, given: Any) -> Any:
        answer = client.post(f"/api/v1/campaigns{path}", json=given)
        answer.raise_for_status()
        return answer.json()

    texts = [(text.format(word), name) for word in WHERE for name, some in SAID.items() for text in some]
    rng = np.random.default_rng(0)
    rng.shuffle(texts)
    instructions = "How does the writer feel about the place? Choose **neutral** where no feeling is shown."
    made: str = post(
        "", {"name": "Moods of reviews", "classes": CLASSES, "budget": 500, "target": 0.95, "max_votes": 5,
             "instructions": instructions},
    )["id"]  # fmt: skip
    post(f"/{made}/items", [{"item": f"review{i}", "payload": {"text": text}} for i, (text, _) in enumerate(texts)])
    post(f"/{made}/annotators", [{"annotator": name} for name in CROWD])
    votes = []
    for i, (_, truth) in enumerate(texts):
        for name in rng.choice(list(CROWD), 4, replace=False):
            right = rng.random() < CROWD[name]
            label = truth if right else rng.choice([other for other in CLASSES if other != truth])
            seconds = float(rng.gamma(4, 0.3 if name == "finn" else 2.0))
            votes.append({"item": f"review{i}", "annotator": str(name), "label": str(label), "seconds": seconds})
    for part in np.array_split(np.array(votes, dtype=object), 14):
        post(f"/{made}/votes", {"votes": list(part)})
        time.sleep(2.3)
    return made


def draw(browser: Any, client: httpx.Client, made: str, folder: Path) -> None:
    invited = client.post(f"/api/v1/campaigns/{made}/invitations", json={"annotator": "you"})
    invited.raise_for_status()
    secret = client.headers["Authorization"].split()[1]
    for page, (width, scheme) in itertools.product(("label", "watch"), SIZES):
        size = {"width": width, "height": 720}
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        tab = context.new_page()
        if page == "label":
            tab.goto(invited.json()["link"])
            tab.wait_for_selector("#answers button")
        else:
            tab.goto(f"{client.base_url}/login?next=/watch/{made}")
            tab.fill("#token", secret)
            tab.keyboard.press("Enter")
            tab.wait_for_selector(".curve")
            tab.wait_for_selector(".doubt")
            tab.set_viewport_size({"width": width, "height": 1700})
        tab.wait_for_timeout(300)
        image = Image.open(io.BytesIO(tab.screenshot()))
        image.convert("RGB").save(folder / f"serve-{page}-{width}-{scheme}.webp", quality=82, method=6)
        context.close()


TEXT = "Anna met Bob in Rome.\nThey spoke of the weather for a while."
TYPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "label-sets": ({"classes": ["politics", "sport", "culture", "weather"]}, {"text": TEXT}),
    "ordinal": ({"classes": ["none", "mild", "moderate", "severe"]}, {"text": TEXT}),
    "ratings": ({"scale": {"min": 1, "max": 7}}, {"text": TEXT}),
    "comparisons": (
        {"ties": True},
        {
            "prompt": "Say something\nabout rain.", "left": {"item": "a", "text": "Rain falls on the roof."},
            "right": {"item": "b", "markdown": "Rain falls on **the roof**."},
        },
    ),
    "rankings": (
        {}, {"prompt": "Which answer is best?", "options": [{"item": x, "text": f"The answer of {x}."} for x in "abc"]}
    ),
    "texts": ({}, {"text": TEXT}),
    "tags": ({"classes": ["O", "B-person", "I-person", "B-place", "I-place"]}, {"text": TEXT}),
    "spans": ({"classes": ["person", "place"]}, {"text": TEXT}),
}  # fmt: skip
"""Answer type -> settings and what is shown of an item."""


def draw_types(browser: Any, client: httpx.Client, folder: Path) -> None:
    """The form of each answer type on a phone, four in a row."""
    pictures = []
    for kind, (settings, payload) in TYPES.items():
        given = {"name": kind.capitalize(), "answer_type": kind, **settings}
        made = client.post("/api/v1/campaigns", json=given).raise_for_status().json()["id"]
        client.post(f"/api/v1/campaigns/{made}/items", json=[{"item": "1", "payload": payload}]).raise_for_status()
        link = client.post(f"/api/v1/campaigns/{made}/invitations", json={"annotator": "you"}).json()["link"]
        context = browser.new_context(viewport={"width": 360, "height": 620}, reduced_motion="reduce")
        tab = context.new_page()
        tab.goto(link)
        tab.wait_for_selector("#answers button")
        tab.wait_for_timeout(200)
        pictures.append(Image.open(io.BytesIO(tab.screenshot())))
        context.close()
    whole = Image.new("RGB", (4 * 370 - 10, 2 * 630 - 10), "#8a9099")
    for i, picture in enumerate(pictures):
        whole.paste(picture, (i % 4 * 370, i // 4 * 630))
    whole.save(folder / "serve-types.webp", quality=82, method=6)


def draw_setup(browser: Any, client: httpx.Client, made: str, folder: Path) -> None:
    """The first page, and the page to set up a campaign."""
    for page, path in (("home", "/"), ("setup", f"/campaign/{made}")):
        context = browser.new_context(viewport={"width": 900, "height": 900}, reduced_motion="reduce")
        tab = context.new_page()
        tab.goto(f"{client.base_url}/login?next={path}")
        tab.fill("#token", client.headers["Authorization"].split()[1])
        tab.keyboard.press("Enter")
        tab.wait_for_selector("h1")
        tab.wait_for_timeout(500)
        image = Image.open(io.BytesIO(tab.screenshot()))
        image.convert("RGB").save(folder / f"serve-{page}.webp", quality=82, method=6)
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the pages of crowdwise serve for the documentation.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/assets", help="folder for the pictures")
    folder = parser.parse_args().out
    program = next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := which(name)))
    with tempfile.TemporaryDirectory() as data, served(Path(data)) as client, sync_playwright() as engine:
        made = campaign(client)
        browser = engine.chromium.launch(executable_path=program, args=["--no-sandbox"])
        draw(browser, client, made, folder)
        draw_types(browser, client, folder)
        draw_setup(browser, client, made, folder)
        browser.close()
    print(f"written: {', '.join(sorted(path.name for path in folder.glob('serve-*.webp')))}")


if __name__ == "__main__":
    main()
