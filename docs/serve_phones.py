"""From nothing to labels of 500 images by three people on their phones, in a browser: steps, seconds and pictures.

    python docs/serve_phones.py [--images 500] [--each 20] [--assets docs/assets]

It starts ``crowdwise serve``, makes a campaign on its page, drops a folder of drawn images, and follows the sign-up
link in three windows of 360 px, which tap answers. Every step is one that a person takes; the seconds are those of the
machine, without the time that a person takes to read. Writes ``serve-phones.webp``.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import Page, expect, sync_playwright
from serve_pictures import ROOT, served

SHAPES = ("circle", "square")
PEOPLE = {"ada": 0.95, "ben": 0.9, "cleo": 0.85}
"""The accuracy of each."""
WAIT = 120_000


def draw(folder: Path, n: int) -> list[Path]:
    """Photographs, more or less: a shape somewhere on a noisy ground."""
    rng, out = np.random.default_rng(0), []
    for i in range(n):
        image = Image.fromarray(rng.integers(90, 200, (480, 640, 3), dtype=np.uint8))
        x, y, r = rng.integers(120, 360), rng.integers(120, 360), rng.integers(50, 110)
        drawn, box = ImageDraw.Draw(image), (x - r, y - r, x + r, y + r)
        colour = tuple(int(c) for c in rng.integers(0, 256, 3))
        (drawn.ellipse if i % 2 == 0 else drawn.rectangle)(box, fill=colour, outline="white", width=4)
        out.append(folder / f"{i:03d}.jpg")
        image.save(out[-1], quality=80)
    return out


class Steps:
    """What was done, and the second at which it was done."""

    def __init__(self) -> None:
        self.began, self.rows = time.monotonic(), list[dict[str, Any]]()

    def note(self, step: str) -> None:
        self.rows.append({"step": step, "second": round(time.monotonic() - self.began, 1)})


def label(page: Page, accuracy: float, n: int, rng: np.random.Generator) -> None:
    """Tap n answers."""
    for _ in range(n):
        picture = page.locator("#question img")
        expect(picture).to_be_visible(timeout=WAIT)
        source = str(picture.get_attribute("src"))
        right = int(source.split(".jpg")[0][-3:]) % 2
        name = SHAPES[right if rng.random() < accuracy else 1 - right]
        page.locator("#answers button", has_text=name).tap()
        expect(picture).not_to_have_attribute("src", source, timeout=WAIT)


def shot(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot()))


def run(images: int, each: int, assets: Path) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        files = draw(folder, images)
        steps = Steps()
        with served(folder) as client:
            steps.note("start: crowdwise serve")
            browser = playwright.chromium.launch(executable_path=which("chromium"))
            desk = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
            desk.set_default_timeout(WAIT)
            desk.goto(f"{client.base_url}/login?next=/new")
            desk.fill("#token", client.headers["authorization"].split()[1])
            desk.keyboard.press("Enter")
            desk.wait_for_url("**/new")
            steps.note("sign in with the token that it printed")
            desk.get_by_label("Name").fill("Shapes")
            desk.get_by_label("Classes, one a line").fill("\n".join(SHAPES))
            desk.get_by_label("Instructions").fill("Which **shape** is on the picture?")
            desk.get_by_role("button", name="Make it").click()
            desk.wait_for_url("**/campaign/*")
            steps.note("name it, write its classes and instructions, make it")
            desk.locator("#file").set_input_files(files)
            expect(desk.locator("#said")).to_have_text(f"{images} new items.", timeout=WAIT)
            steps.note(f"drop the folder of {images} images")
            desk.get_by_role("button", name="Make a sign-up link for many").click()
            link = desk.locator("#made")
            link.wait_for()
            steps.note("make a sign-up link")
            phones = []
            for person in PEOPLE:
                context = browser.new_context(
                    viewport={"width": 360, "height": 720}, has_touch=True, is_mobile=True, device_scale_factor=2
                )
                phone = context.new_page()
                phone.set_default_timeout(WAIT)
                phone.goto(link.input_value())
                phone.get_by_label("Your name or worker id").fill(person)
                phone.get_by_role("button", name="Begin").tap()
                expect(phone.locator("#question img")).to_be_visible(timeout=WAIT)
                phones.append(phone)
            steps.note("each opens the link, writes a name, begins")
            rng = np.random.default_rng(1)
            label(phones[0], PEOPLE["ada"], 1, rng)
            expect(phones[0].locator("#done")).to_have_text("1", timeout=WAIT)
            steps.note("the first label")
            for phone, accuracy in zip(phones, PEOPLE.values(), strict=True):
                label(phone, accuracy, each, rng)
            steps.note(f"{each} more labels of each")
            pictures = [shot(phone) for phone in phones]
            row = Image.new("RGB", (sum(one.width for one in pictures) + 80, pictures[0].height), "#888")
            for i, one in enumerate(pictures):
                row.paste(one, (i * (one.width + 40), 0))
            row.resize((row.width // 2, row.height // 2)).save(assets / "serve-phones.webp", quality=80)
            campaign = desk.url.rsplit("/", 1)[1].split("?")[0]
            desk.goto(f"{client.base_url}/watch/{campaign}")
            expect(desk.locator("#facts")).to_contain_text(f"by {len(PEOPLE)} annotators", timeout=WAIT)
            votes = client.get(f"/api/v1/campaigns/{campaign}/status").json()["votes"]
            assert votes == 1 + each * len(PEOPLE), votes
            browser.close()
    return steps.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--each", type=int, default=20)
    parser.add_argument("--assets", type=Path, default=ROOT / "docs" / "assets")
    given = parser.parse_args()
    for row in run(given.images, given.each, given.assets):
        sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
