"""A campaign behind a web service: annotators ask what to do now, answer, or skip, until the labels are good enough.

    python examples/campaign_service.py                  # five made-up annotators work through it, and it ends
    python examples/campaign_service.py --serve 8000     # the service alone, for your own page

====================================  ===============================================================
``GET /next?annotator=w1&n=2``        what w1 should do now; asked again, the same until it is answered
``POST /answer``                      ``{"item": "photo3", "annotator": "w1", "label": "wren"}``
``POST /skip``                        ``{"item": "photo3", "annotator": "w1"}``: never ask w1 about it again
``POST /settings``                    ``{"budget": 400}``: change a setting while it runs
``GET /status``                       counts, the estimated accuracy, the state, why it stops, what to do then
====================================  ===============================================================

Threads share one open campaign; every answer is on the disk before it is acknowledged, so that a crash loses none, and
the service is started again with ``Campaign.open(folder)``. Only the standard library is needed: the four calls below
fit into any framework.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

import crowdwise as cw

CLASSES = ["wren", "robin"]


def open_or_make(folder: Path, n_items: int) -> cw.Campaign:
    """The campaign in a folder, or a new one."""
    if (folder / "campaign.db").exists():
        return cw.Campaign.open(folder)
    return cw.Campaign.create(
        folder, cw.OneCoin(), classes=CLASSES, items=[f"photo{n}" for n in range(n_items)], unknown="add",
        budget=8.0 * n_items, target=0.85,
    )  # fmt: skip


def handler(campaign: cw.Campaign) -> type[BaseHTTPRequestHandler]:
    """The service around an open campaign."""

    class Service(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(where.query).items()}
            if where.path == "/next":
                self.answer(lambda: self.next_questions(asked["annotator"], int(asked.get("n", 1))))
            elif where.path == "/status":
                self.answer(campaign.status)
            else:
                self.send({"error": f"There is no {where.path}."}, 404)

        def do_POST(self) -> None:
            said = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            if self.path == "/answer":
                self.answer(lambda: vars(campaign.add(said)))
            elif self.path == "/skip":
                self.answer(lambda: {"skipped": campaign.skip(said["annotator"], [said["item"]]) is None})
            elif self.path == "/settings":
                self.answer(lambda: {name: list(pair) for name, pair in campaign.change(**said).items()})
            else:
                self.send({"error": f"There is no {self.path}."}, 404)

        def next_questions(self, annotator: str, n: int) -> dict[str, Any]:
            questions = campaign.next_for(annotator, n)
            if questions:
                return {"questions": [q.item for q in questions], "state": "running", "why_none": None}
            found = campaign.standing(annotator)
            return {"questions": [], "state": found.state, "why_none": found.why}

        def answer(self, work: Any) -> None:
            """What is wrong with a request is said to who made it, and nothing of it was written."""
            try:
                self.send(work(), 200)
            except (cw.errors.CrowdwiseError, KeyError) as error:
                self.send({"error": f"{error}"}, 400)

        def send(self, facts: Any, code: int) -> None:
            body = json.dumps(facts).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """No line per request."""

    return Service


def call(url: str, said: dict[str, Any] | None = None) -> dict[str, Any]:
    """One request, as a page would make it."""
    data = None if said is None else json.dumps(said).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=data)) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        return dict(json.load(error))


def work(url: str, name: str, skill: float, truth: dict[str, str], seed: int) -> None:
    """A made-up annotator: asks, answers (rightly with some probability), skips now and then, until it is over."""
    rng = np.random.default_rng(seed)
    idle = 0
    while idle < 3:  # others are still at work
        found = call(f"{url}/next?annotator={name}&n=5")
        if found["state"] not in ("running", "waiting"):
            return
        idle = 0 if found["questions"] else idle + 1
        time.sleep(0.2 * (idle > 0))
        for item in found["questions"]:
            if rng.random() < 0.03:
                call(f"{url}/skip", {"item": item, "annotator": name})
                continue
            right = rng.random() < skill
            label = truth[item] if right else next(c for c in CLASSES if c != truth[item])
            call(f"{url}/answer", {"item": item, "annotator": name, "label": label})


def simulate(folder: Path, n_items: int = 20) -> None:
    """The service with five annotators who use it at once."""
    rng = np.random.default_rng(0)
    truth = {f"photo{n}": CLASSES[rng.integers(2)] for n in range(n_items)}
    campaign = open_or_make(folder, n_items)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(campaign))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    skills = (0.95, 0.9, 0.85, 0.7, 0.55)
    crowd = [threading.Thread(target=work, args=(url, f"w{m}", p, truth, m)) for m, p in enumerate(skills)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    print("an unknown class:", call(f"{url}/answer", {"item": "photo0", "annotator": "w9", "label": "hawk"})["error"])
    status = call(f"{url}/status")
    print(f"{status['votes']} votes on {status['voted_on']} items, spent {status['spent']:g} of {status['budget']:g}")
    print(f"{status['state']}: {status['stop']}. {status['advice']}")
    print(f"accuracy estimated at {status['accuracy_low']:.2f} to {status['accuracy_high']:.2f}, ", end="")
    server.shutdown()
    server.server_close()
    campaign.close()
    with cw.Campaign.open(folder) as again:  # the next morning: the same labels, without naming the model
        print(f"really {again.consensus().score(truth):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="A campaign behind a web service.")
    parser.add_argument("--folder", type=Path, help="where the campaign is kept; by default a temporary folder")
    parser.add_argument("--serve", type=int, metavar="PORT", help="serve until it is interrupted")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary) / "birds"
        if given.serve is None:
            simulate(folder)
            return
        with open_or_make(folder, 200) as campaign:
            print(f"http://127.0.0.1:{given.serve}/next?annotator=w1", flush=True)
            ThreadingHTTPServer(("127.0.0.1", given.serve), handler(campaign)).serve_forever()


if __name__ == "__main__":
    main()
