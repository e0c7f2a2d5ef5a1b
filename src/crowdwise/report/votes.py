"""The parts of a report that votes have: findings, annotators, groups, items, classes, fairness.

===============  ==================================================================================================
key              holds
===============  ==================================================================================================
``level``        the error rate of every detector
``summary``      a headline, what to do first, how sure the labels are, how many annotators to keep, look at, drop
``findings``     kind, title, names, numbers, sentence and advice of each finding, the most pressing first
``data``         the shape of the votes: counts, histograms, shares of the classes
``truth``        accuracy and calibration of the labels, where the truth is known (else null); ``by_votes``: whether
                 all of it is gold, and each of its items was labelled by its votes and what other items teach
``proof``        what gold labels prove of the labels, or would prove, with a sheet of random items (null: nothing)
``annotators``   a row for each, the most pressing first
``confusion``    the crowd's matrix and those of the first annotators
``groups``       annotators who go together, and the layout of the drawing
``items``        those to look at first; ``pairs``, the classes that are confused with each other
``more``         what more votes or gold labels would bring, and how many they are (null: not known)
``matrix``       how often the annotators with the most votes agree, two by two (null: no two have common items)
``fairness``     by attributes of items and demographics of annotators (null where there are none)
===============  ==================================================================================================

Annotators are ordered by what has to be done: drop, look, unclear, keep; among these the most suspect, then the most
votes first. Confusion matrices are the counts of the evidence (every vote judged by the others), as shares of a row in
percent, for the first rows as long as they have ``MOST_CELLS`` cells between them.

Two kinds of groups: those that repeat each other (copiers and colluders, see ``findings``), and those that depend on
one another without a mistake in common to show for it (``trust.groups``): the same training, the same team, models of
one family. The layout is the same every time: each group is a circle of its own, the members on it in the order of the
votes' annotators. Links are the pairs that the detectors found; their width goes with the strength.

What is proven of the labels by gold labels, or what random gold labels would prove. Labels that were fitted with gold
vouch for nothing: the method is then fitted again without it, and these labels are certified. Gold that is not a random
draw by its scores proves nothing, and the section says so.

Small images of items stand in the page itself. An array (H x W grey, or H x W x 3) becomes a PNG here, without any
library. A file is made smaller with Pillow where that is installed; without, it is taken as it is if it is small enough
for a page.
"""

from __future__ import annotations

import base64
import io
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crowdwise import metrics, registry
from crowdwise.core.consensus import Consensus
from crowdwise.core.dependence import more_votes
from crowdwise.core.intervals import rate_interval
from crowdwise.core.numerics import Floats, Ints, normalise
from crowdwise.data.table import histogram
from crowdwise.data.votes import Votes
from crowdwise.errors import CrowdwiseError, InputError
from crowdwise.report.findings import RANK, Diagnosis, FindingKind, Progress, concluded, inspect
from crowdwise.report.section_summary import MOST_NAMES, estimate, number, plain_list, shortened, summary
from crowdwise.trust.agreement_pairs import pairwise_agreement
from crowdwise.trust.annotator_measures import seconds
from crowdwise.trust.certificate import certify, draw_for_gold, would_prove
from crowdwise.trust.demographics import compare_demographics
from crowdwise.trust.evidence import known_classes
from crowdwise.trust.fairness import assess_fairness
from crowdwise.trust.flags import FlagKind, Verdict
from crowdwise.trust.wording import flag_words, joined, named, sentence, to_dict

MOST_ROWS = 300
MOST_LISTED = 100_000
"""Annotators in the dict and in the download: a million rows would need gigabytes."""
MOST_CELLS = 40_000
"""Cells of confusion matrices in a page, all annotators together."""
MOST_DRAWN = 30
"""Classes up to which the crowd's matrix is drawn."""
MEASURES = (
    "votes", "accuracy", "skill", "agreement", "weight", "information", "capacity", "bias", "speed", "drift",
    "suspicion",
)  # fmt: skip


def annotator_rows(diagnosis: Diagnosis, truth: Ints | None) -> list[dict[str, Any]]:
    """A dict for each annotator, in the order described above."""
    seen = diagnosis.inspection
    votes, consensus = seen.votes, seen.consensus
    columns = _columns(diagnosis)
    measured = _measured(votes, truth)
    names = votes.annotators.tolist()
    # A captured consensus convicts the innocent, so its flags are not shown.
    flags = seen.people.flags if seen.people is not None and not seen.captured else ((),) * len(names)
    group = {name: g + 1 for g, members in enumerate(seen.groups) for name in members}
    rank = np.array([RANK[diagnosis.verdicts[name]] for name in names])
    order = np.lexsort((-consensus.votes_per_annotator, -columns["suspicion"], rank))
    kinds: dict[Any, list[str]] = {}
    for finding in diagnosis.findings:
        for name in finding.annotators:
            kinds.setdefault(name, []).append(str(finding.kind))
    rows = []
    listed = {name: plain_list(values) for name, values in columns.items()}
    for m in order[:MOST_LISTED].tolist():
        row: dict[str, Any] = {"annotator": str(names[m]), "verdict": diagnosis.verdicts[names[m]].value}
        row |= {name: values[m] for name, values in listed.items()}
        judged = row["verdict"] != Verdict.UNCLEAR  # a verdict needs enough votes
        row["flags"] = [flag_words(flag) for flag in flags[m] if not (judged and flag.kind is FlagKind.FEW_VOTES)]
        row["kinds"] = kinds.get(names[m], [])
        if names[m] in group:
            row["group"] = group[names[m]]
        if measured is not None:
            row["measured"], row["measured_on"] = measured[0][m], measured[1][m]
        rows.append(row)
    return rows


def _columns(diagnosis: Diagnosis) -> dict[str, Any]:
    """The measures of all annotators; the consensus' own accuracies where annotators could not be judged by each
    other."""
    seen = diagnosis.inspection
    M = seen.votes.n_annotators
    if seen.people is None:
        accuracy, low, high = seen.consensus.accuracy()
        columns: dict[str, Any] = {
            "votes": seen.consensus.votes_per_annotator, "accuracy": accuracy, "accuracy_low": low,
            "accuracy_high": high, "suspicion": np.zeros(M),
        }  # fmt: skip
        return columns
    wanted = [name for measure in MEASURES for name in (measure, f"{measure}_low", f"{measure}_high")]
    columns = {name: seen.people.columns[name] for name in wanted if name in seen.people.columns}
    if seen.bits is not None:
        columns |= {name: seen.bits.columns[name] for name in ("capacity", "capacity_low", "capacity_high")}
    columns.setdefault("capacity", np.full(M, np.nan))
    columns["bias_class"] = np.array([str(c) for c in seen.people.columns["bias_class"].tolist()], dtype=object)
    return columns


def _measured(votes: Any, truth: Ints | None) -> tuple[list[Any], list[int]] | None:
    """The share of votes that are right on items with known truth, and how many there are."""
    if truth is None or not (truth >= 0).any():
        return None
    known = truth[votes.item] >= 0
    m = votes.annotator[known]
    n = np.bincount(m, minlength=votes.n_annotators)
    right = np.bincount(m, weights=votes.label[known] == truth[votes.item][known], minlength=votes.n_annotators)
    share = np.divide(right, n, out=np.full(len(n), np.nan), where=n > 0)
    return plain_list(share), n.tolist()


def confusions(diagnosis: Diagnosis, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The crowd's matrix and those of the first annotators, in whole percent of a row; with the expected counts."""
    seen = diagnosis.inspection
    classes = [str(c) for c in seen.votes.classes.tolist()]
    if seen.evidence is None:
        return {"classes": classes, "crowd": None, "annotators": {}, "shown": 0}
    K = len(classes)
    counts = seen.evidence.counts
    crowd = counts.sum(axis=0)
    place = {str(name): m for m, name in enumerate(seen.votes.annotators.tolist())}
    shown = min(len(rows), MOST_ROWS, MOST_CELLS // (K * K))
    return {
        "classes": classes,
        "crowd": _matrix(crowd) if K <= MOST_DRAWN else None,
        "annotators": {row["annotator"]: _matrix(counts[place[row["annotator"]]]) for row in rows[:shown]},
        "shown": shown,
    }


def _matrix(counts: Floats) -> dict[str, Any]:
    """Rows of shares in whole percent, ``None`` in rows with less than half an item; and their expected votes."""
    share, total = np.rint(100.0 * normalise(counts + 1e-12, axis=1)).astype(int).tolist(), counts.sum(axis=1)
    rows = [row if n >= 0.5 else [None] * len(row) for row, n in zip(share, total, strict=True)]
    return {"share": rows, "votes": [number(n, 1) for n in total]}


MOST_MEMBERS, MOST_NAMED = 120, 24
"""Members of one group that are drawn, and up to how many have their names beside them; all are listed."""
MOST_LINKS = 400
GAP, CLOSE, LABEL = 40.0, 14.0, 84.0
"""The distance of two neighbours on a circle, the same without names, and the room for a name beside it."""


def group_section(diagnosis: Diagnosis) -> dict[str, Any]:
    """Groups with their members, links and sentences, and the layout of the drawing."""
    seen = diagnosis.inspection
    kinds = (FindingKind.CAMPS, FindingKind.COPIERS)
    words = {finding.annotators: sentence(finding) for kind in kinds for finding in diagnosis.of_kind(kind)}
    groups: list[dict[str, Any]] = []
    for members in seen.groups:
        names, links = [str(name) for name in members], _links(seen, members)
        groups.append(
            {"members": names, "sentence": words[tuple(members)], "links": links, "drawing": layout(names, links)}
        )
    repeated = {frozenset(group["members"]) for group in groups}
    innocent = [
        {
            "members": [str(name) for name in members],
            "sentence": f"{joined(named('annotator', m) for m in members)} depend on each other.",
        }
        for members in (seen.dependent.groups if seen.dependent is not None else [])
        if not any({str(m) for m in members} <= other for other in repeated)
    ]
    return {
        "groups": groups,
        "dependent": innocent,
        "captured": seen.captured,
        "notes": [
            f"{step.capitalize()}: {seen.notes[step]}"
            for step in ("shared mistakes", "rings", "groups")
            if step in seen.notes
        ],
    }


def _links(seen: Any, members: list[Any]) -> list[dict[str, Any]]:
    """The pairs found inside a group, the strongest first."""
    inside = set(members)
    pairs = [
        (str(a), str(b), float(x))
        for a, b, x in (seen.shared.edges if seen.shared is not None else [])
        if a in inside and b in inside
    ]
    if not pairs:  # a ring: everybody with everybody
        pairs = [(str(a), str(b), 0.5) for i, a in enumerate(members) for b in members[i + 1 :]]
    pairs.sort(key=lambda pair: -pair[2])
    return [{"from": a, "to": b, "strength": number(x)} for a, b, x in pairs[:MOST_LINKS]]


def layout(members: list[str], links: list[dict[str, Any]]) -> dict[str, Any]:
    """Width, height, nodes (name, x, y, side of the name) and links (two ends, strength) of one group's drawing."""
    shown = members[:MOST_MEMBERS]
    named = len(shown) <= MOST_NAMED
    radius = max(30.0, (GAP if named else CLOSE) * len(shown) / (2.0 * np.pi))
    wide, high = 2.0 * (radius + (LABEL if named else 12.0)), 2.0 * (radius + (26.0 if named else 12.0))
    nodes: list[dict[str, Any]] = []
    for i, name in enumerate(shown):
        # Two members stand one above the other, so that names do not meet.
        angle = 2.0 * np.pi * i / len(shown) - np.pi / 2.0
        across, down = float(np.cos(angle)), float(np.sin(angle))
        side = "middle" if abs(across) < 0.25 else "start" if across > 0 else "end"
        at = {"x": round(wide / 2.0 + radius * across, 1), "y": round(high / 2.0 + radius * down, 1)}
        nodes.append({"name": name, **at, "side": side, "below": down > 0, "named": named})
    place = {node["name"]: node for node in nodes}
    lines = [
        {"x1": a["x"], "y1": a["y"], "x2": b["x"], "y2": b["y"], "strength": link["strength"]}
        for link in links
        if (a := place.get(link["from"])) and (b := place.get(link["to"]))
    ]
    return {"width": round(wide, 1), "height": round(high, 1), "nodes": nodes, "links": lines}


SHOWN = 40
MOST_VOTE_CLASSES = 4
"""Classes of an item's posterior that are shown; the rest is summed up."""
MOST_VOTERS = 12
"""Annotators named for each label of an item."""
LONG = 600
"""Characters of a text that are shown."""


def review(
    diagnosis: Diagnosis, truth: Any = None, texts: Mapping[Any, str] | None = None,
    images: Mapping[Any, Any] | None = None, shown: int = SHOWN,
) -> list[dict[str, Any]]:  # fmt: skip
    """The items to look at first, one dict each."""
    seen = diagnosis.inspection
    report, votes = seen.items, seen.votes
    if report is None:
        order = np.argsort(seen.consensus.corrected_posterior.max(axis=1), kind="stable")[:shown]
        why = np.full(len(order), "", dtype=object)
    else:
        order = report.order(suggested=True)[:shown]
        why = report.why(order)
    classes, people = [str(c) for c in votes.classes.tolist()], votes.annotators
    out = []
    for n, reason in zip(order.tolist(), why.tolist(), strict=True):
        name = votes.items[n].item() if hasattr(votes.items[n], "item") else votes.items[n]
        row: dict[str, Any] = {"item": str(name), "label": classes[int(seen.consensus.label_codes[n])], "why": reason}
        if report is not None:
            row |= {c: number(report.columns[c][n]) for c in ("right", "flip", "gain", "against")}
        row["posterior"] = _posterior(seen.consensus.corrected_posterior[n], classes)
        row["votes"] = _votes(votes, n, classes, people)
        if truth is not None and truth[n] >= 0:
            row["truth"] = classes[int(truth[n])]
        if texts and name in texts:
            row["text"] = shortened(texts[name], LONG)
        if images and name in images:
            image = thumbnail(images[name])
            row |= {} if image is None else {"image": image}
        out.append(row)
    return out


def _posterior(q: Any, classes: list[str]) -> list[dict[str, Any]]:
    """The most probable classes, the others as one."""
    order = np.argsort(-q, kind="stable")[:MOST_VOTE_CLASSES]
    shown = [{"class": classes[k], "p": number(q[k])} for k in order.tolist() if q[k] >= 0.001]
    rest = float(1.0 - q[order].sum())
    return [*shown, {"class": None, "p": number(rest)}] if rest >= 0.005 else shown


def _votes(votes: Any, n: int, classes: list[str], people: Any) -> list[dict[str, Any]]:
    """Label -> how many and who, the most votes first."""
    rows = slice(int(votes.indptr[n]), int(votes.indptr[n + 1]))
    labels, names = votes.label[rows], people[votes.annotator[rows]]
    count = np.bincount(labels, minlength=len(classes))
    return [
        {"label": classes[k], "votes": int(count[k]), "by": [str(m) for m in names[labels == k][:MOST_VOTERS].tolist()]}
        for k in np.argsort(-count, kind="stable").tolist()
        if count[k]
    ]


def item_table(diagnosis: Diagnosis) -> dict[str, list[Any]]:
    """All items, in the order of the votes, as columns: what the download holds."""
    seen = diagnosis.inspection
    columns: dict[str, list[Any]] = {"item": [str(name) for name in seen.votes.items.tolist()]}
    columns["label"] = [str(name) for name in seen.consensus.labels.tolist()]
    if seen.items is None:
        columns["probability"] = plain_list(seen.consensus.corrected_posterior.max(axis=1).round(3))
        columns["votes"] = seen.consensus.votes_per_item.tolist()
        return columns
    given = seen.items.columns
    for name in ("probability", "right"):
        columns[name] = plain_list(np.round(given[name], 3))
    columns["votes"] = given["votes"].tolist()
    doubt = given["suggested"].tolist()
    columns["suggested"] = ["yes" if x else "" for x in doubt]
    columns["rank"] = [r if x else None for r, x in zip(given["rank"].tolist(), doubt, strict=True)]
    chosen = np.flatnonzero(given["suggested"])
    why = np.full(len(seen.votes), "", dtype=object)
    why[chosen] = seen.items.why(chosen)
    columns["why"] = why.tolist()
    return columns


def class_pairs(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Pairs of classes that are taken for each other beyond chance, the most confused first."""
    seen = diagnosis.inspection
    if seen.items is None:
        return []
    return [
        {
            "first": str(pair.classes[0]), "second": str(pair.classes[1]), "rate": number(pair.rate),
            "low": number(pair.low), "high": number(pair.high), "share": number(pair.share),
            "expected": number(pair.expected), "undecided": pair.items, "sentence": str(pair),
        }
        for pair in seen.items.ambiguous()
    ]  # fmt: skip


SIDE = 96
"""The longest side of an image, in pixels."""
MOST_BYTES = 30_000
"""The largest file that is taken as it is."""
TYPES = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".gif": "gif", ".webp": "webp"}
"""What every browser shows."""


def image_size(image: Any) -> tuple[int, int] | None:
    """Width and height of an image, a file or an array; ``None`` for a file that cannot be read."""
    if not isinstance(image, (str, os.PathLike)):
        height, width = np.asarray(image).shape[:2]
        return width, height
    try:
        from PIL import Image

        with Image.open(image) as found:
            return found.size
    except (ImportError, OSError, ValueError):
        return None


def picture_of(image: Any, shape: tuple[int, int]) -> Any:
    """H x W x 3 bytes of an image that has this height and width; ``None`` where it is not known, or has another."""
    if isinstance(image, (str, os.PathLike)):
        if image_size(image) != shape[::-1]:
            return None
        from PIL import Image

        with Image.open(image) as found:
            return np.asarray(found.convert("RGB"))
    array = None if image is None else _bytes(np.asarray(image), max(shape))
    if array is None or array.shape[:2] != shape:
        return None
    return np.repeat(array[:, :, None], 3, axis=2) if array.ndim == 2 else array


def thumbnail(image: Any, side: int = SIDE) -> str | None:
    """A ``data:`` address for an image: a file or an array; ``None`` for a file that cannot be shown."""
    if isinstance(image, (str, os.PathLike)):
        return _of_file(Path(image), side)
    array = np.asarray(image)
    if array.ndim not in (2, 3) or 0 in array.shape or (array.ndim == 3 and array.shape[2] not in (1, 3)):
        raise InputError(
            f"An image is an array of shape {array.shape}: expected height x width, with 3 colours or none, or a file."
        )
    return _address(png(_bytes(array, side)), "png")


def _bytes(array: Any, side: int) -> Any:
    """0 to 255, of one or three colours, about ``side`` pixels; numbers of another range are stretched to it."""
    x = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if x.dtype != np.uint8:
        x = x.astype(np.float64)
        low, high = float(np.nanmin(x)), float(np.nanmax(x))
        x = np.nan_to_num((x - low) / max(high - low, 1e-12) * 255.0).astype(np.uint8)
    longest = max(x.shape[:2])
    if longest > side:
        step = -(-longest // side)
        return x[::step, ::step]
    return x


def png(x: Any) -> bytes:
    """H x W or H x W x 3 bytes as a PNG file: signature, header, one compressed stream, end."""
    height, width = x.shape[:2]
    rows = np.ascontiguousarray(x, dtype=np.uint8).reshape(height, -1)
    raw = np.concatenate([np.zeros((height, 1), dtype=np.uint8), rows], axis=1).tobytes()  # filter 0 on every line

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if x.ndim == 3 else 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


def _of_file(path: Path, side: int) -> str | None:
    try:
        from PIL import Image
    except ImportError:
        small = path.is_file() and path.suffix.lower() in TYPES and path.stat().st_size <= MOST_BYTES
        return _address(path.read_bytes(), TYPES[path.suffix.lower()]) if small else None
    try:
        with Image.open(path) as image:
            shown = image.convert("RGB")
            shown.thumbnail((2 * side, 2 * side))
            out = io.BytesIO()
            shown.save(out, "JPEG", quality=72)
    except (OSError, ValueError, Image.DecompressionBombError):
        return None
    return _address(out.getvalue(), "jpeg")


def _address(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"


def vote_sections(
    votes: Votes, consensus: Consensus, known: Ints | None, truth: Any, level: float, progress: Progress | None,
    notes: list[str], all_items: bool, *, texts: Any, images: Any, attributes: Any, demographics: Any,
) -> dict[str, Any]:  # fmt: skip
    """The parts of the dict, by name; ``known`` are the classes that may be used, ``truth`` only measures."""
    diagnosis = concluded(inspect(votes, consensus, gold=known, level=level, progress=progress))
    notes += [f"{step.capitalize()}: {words}" for step, words in diagnosis.inspection.notes.items()]
    true = votes.truth if truth is None else votes.encode_truth(truth)
    known = known_classes(votes, consensus, known)
    hidden = true if true is None or known is None else np.where(known >= 0, -1, true)
    hidden = None if hidden is None or not (hidden >= 0).any() else hidden
    rows = annotator_rows(diagnosis, hidden)
    if len(rows) < votes.n_annotators:
        notes.append(f"Annotators: the {len(rows):,} that matter most are listed, of {votes.n_annotators:,}.")
    by_group = bool(attributes) or demographics is not None
    kinds = diagnosis.kinds.items()
    findings = [to_dict(f, words, MOST_NAMES) for kind, words in kinds for f in diagnosis.of_kind(kind)[:MOST_NAMES]]
    measured = _truth(consensus, hidden)
    out = {
        "level": level, "summary": summary(diagnosis, measured), "findings": findings,
        "data": _shape(votes, consensus, true), "truth": measured,
        "proof": proof(votes, consensus, known, hidden), "more": more_labels(diagnosis), "annotators": rows,
        "matrix": agreement_matrix(votes),
        "confusion": confusions(diagnosis, rows), "groups": group_section(diagnosis),
        "items": [] if diagnosis.inspection.captured else review(diagnosis, hidden, texts, images),
        "pairs": class_pairs(diagnosis),
        "fairness": fairness_section(diagnosis, hidden, attributes or {}, demographics) if by_group else None,
    }  # fmt: skip
    return out | ({"item_table": item_table(diagnosis)} if all_items else {})


def more_labels(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """What votes on the items to review, or on all, and gold labels would bring: labels expected to be right."""
    seen = diagnosis.inspection
    consensus, n = seen.consensus, seen.consensus.votes_per_item
    if seen.items is None or seen.captured:
        return None
    free = np.ones(len(n), dtype=bool) if consensus.gold is None else consensus.gold < 0
    chosen, q = seen.items.columns["suggested"] & free, consensus.stated_posterior
    now = q[np.arange(len(q)), consensus.label_codes]
    if not chosen.any():
        return None

    def row(where: Any, each: int) -> dict[str, Any]:
        """``each`` more votes on some items; none stands for one gold label."""
        at, right = np.flatnonzero(where), now.copy()
        parts = (consensus.crowd_confusion(), consensus.shown_dependence, np.random.default_rng(0))
        right[at] = 1.0 if not each else np.maximum(now[at], more_votes(q[at], n[at], n[at] + each, *parts))
        fixed = float((right - now)[free].sum())
        kind = {"what": "gold" if not each else "votes", "all": len(at) == int(free.sum()), "items": len(at)}
        return kind | {
            "each": max(each, 1), "answers": len(at) * max(each, 1), "accuracy": number(right[free].mean()),
            "fixed": number(fixed, 1), "per_100": number(100.0 * fixed / (len(at) * max(each, 1)), 1),
        }  # fmt: skip

    rows = [row(chosen, each) for each in (1, 3, 0)] + [row(free, each) for each in (1, 3)]
    return {"now": number(now[free].mean()), "rows": rows}


MOST_MATRIX = 16
"""Annotators in the matrix of agreement, those with the most votes."""


def agreement_matrix(votes: Votes) -> dict[str, Any] | None:
    """Names, and the share of common items on which each two agree, with how many these are."""
    count = np.bincount(votes.annotator, minlength=votes.n_annotators)
    who = np.argsort(-count, kind="stable")[:MOST_MATRIX]
    names = votes.annotators[who].tolist()
    try:
        pairs = pairwise_agreement(votes.only(names))
    except InputError:  # weighted votes, or too many pairs
        return None
    if len(names) < 2 or not len(pairs):
        return None
    place = {name: i for i, name in enumerate(names)}
    share: list[list[Any]] = [[None] * len(names) for _ in names]
    common = [[0] * len(names) for _ in names]
    for a, b, n, x in zip(pairs.first.tolist(), pairs.second.tolist(), pairs.common, pairs.agreement, strict=True):
        for i, j in ((place[a], place[b]), (place[b], place[a])):
            share[i][j], common[i][j] = round(100.0 * float(x)), int(n)
    facts = {"annotators": [str(name) for name in names], "share": share, "common": common}
    return facts | {"of": int((count > 0).sum())}


MOST_TIMES = 24


def over_time(votes: Votes, labels: Ints) -> list[dict[str, Any]] | None:
    """Votes in equal steps of time: when a step begins, how many there are, and the share that is the label."""
    if votes.timestamp is None:
        return None
    at = seconds(votes.timestamp)
    known = np.isfinite(at)
    low, high = (float(at[known].min()), float(at[known].max())) if known.any() else (0.0, 0.0)
    if high <= low:
        return None
    step = np.minimum(((at[known] - low) / (high - low) * MOST_TIMES).astype(int), MOST_TIMES - 1)
    total = np.bincount(step, minlength=MOST_TIMES)
    same = np.bincount(step, weights=(votes.label == labels[votes.item])[known], minlength=MOST_TIMES)
    begins = low + (high - low) * np.arange(MOST_TIMES) / MOST_TIMES
    dates = votes.timestamp.dtype.kind in "MO"
    unit = "D" if high - low > 2 * 86400 * MOST_TIMES else "m"
    words = [str(np.datetime64(int(t), "s").astype(f"datetime64[{unit}]")).replace("T", " ") for t in begins]
    return [
        {"from": words[i] if dates else f"{begins[i]:,.0f}", "votes": int(total[i])}
        | {"agrees": number(same[i] / total[i]) if total[i] else None}
        for i in range(MOST_TIMES)
    ]


def _shape(votes: Votes, consensus: Consensus, true: Ints | None) -> dict[str, Any]:
    d = votes.describe()
    K = votes.n_classes
    counts = {"votes": np.bincount(votes.label, minlength=K), "labels": np.bincount(consensus.label_codes, minlength=K)}
    shares = {"vote_share": counts["votes"], "label_share": counts["labels"]}
    if true is not None and (true >= 0).any():
        shares["truth_share"] = np.bincount(true[true >= 0], minlength=K)
    d["classes"] = [
        {"class": str(name)}
        | {what: int(n[k]) for what, n in counts.items()}
        | {what: number(n[k] / max(n.sum(), 1)) for what, n in shares.items()}
        for k, name in enumerate(votes.classes.tolist())
    ]
    del d["votes_per_class"]
    d["over_time"] = over_time(votes, consensus.label_codes)
    d["histograms"] = {
        "votes_per_item": histogram(np.diff(votes.indptr)),
        "votes_per_annotator": histogram(np.bincount(votes.annotator, minlength=votes.n_annotators)),
    }
    return d


def _truth(consensus: Consensus, truth: Ints | None) -> dict[str, Any] | None:
    by_votes = truth is None
    pair = consensus.gold_by_votes if truth is None else (consensus.posterior, consensus.truth_codes(truth))
    if pair is None:
        return None
    classes = consensus.classes.tolist()
    table = metrics.reliability(*pair, bins=10)
    low, high = rate_interval(table["items"] * table["accuracy"], table["items"])
    table |= {"low": np.minimum(low, table["accuracy"]), "high": np.maximum(high, table["accuracy"])}
    return {
        "by_votes": by_votes,
        "accuracy": estimate(metrics.accuracy(*pair)),
        "calibration_error": estimate(metrics.calibration_error(*pair)),
        "per_class": {str(classes[k]): estimate(e) for k, e in metrics.accuracy_per_class(*pair).items()},
        "reliability": {name: plain_list(values) for name, values in table.items()},
    }


MOST_CLASSES = 5
MOST_ATTRIBUTES = 4
MOST_GROUPS = 12
RESAMPLES = 300


def fairness_section(
    diagnosis: Diagnosis, truth: Any, attributes: Mapping[str, Mapping[Any, Any]], demographics: Any
) -> dict[str, Any]:
    """``items``: rates and gaps by attribute; ``annotators``: which groups label differently; ``notes``."""
    notes: list[str] = []
    out: dict[str, Any] = {"items": [], "annotators": None, "notes": notes}
    for name in list(attributes)[:MOST_ATTRIBUTES]:
        try:
            out["items"].append(_by_attribute(diagnosis, truth, name, attributes[name]))
        except InputError as error:
            notes.append(f"{name}: {error}")
    if len(attributes) > MOST_ATTRIBUTES:
        notes.append(f"{len(attributes) - MOST_ATTRIBUTES} further attributes of items were not looked at.")
    if demographics is not None:
        try:
            out["annotators"] = _by_demographics(diagnosis, demographics)
        except InputError as error:
            notes.append(f"Annotators: {error}")
    return out


def _by_attribute(diagnosis: Diagnosis, truth: Any, name: str, groups: Mapping[Any, Any]) -> dict[str, Any]:
    seen = diagnosis.inspection
    classes = seen.votes.classes.tolist()
    share = np.bincount(seen.consensus.label_codes, minlength=len(classes))
    chosen = (
        [classes[1]] if len(classes) == 2 else [classes[k] for k in np.argsort(-share, kind="stable")[:MOST_CLASSES]]
    )
    known = truth if truth is not None and (truth >= 0).any() else None
    results = []
    for positive in chosen:
        report = assess_fairness(
            seen.votes, seen.consensus, dict(groups), positive=positive, truth=known, resamples=RESAMPLES
        )
        rows = [
            {"group": str(g), "items": int(n), **{rate: estimate(by[g]) for rate, by in report.rates.items()}}
            for g, n in zip(report.groups.tolist(), report.items.tolist(), strict=True)
        ]
        gaps = [{"criterion": c, **estimate(e), "differs": report.differs[c]} for c, e in report.gaps.items()]
        facts = {"positive": str(positive), "basis": report.basis, "groups": rows[:MOST_GROUPS], "gaps": gaps}
        results.append(facts | {"sentences": report.sentences()})
    return {"attribute": name, "classes": results}


def _by_demographics(diagnosis: Diagnosis, demographics: Any) -> dict[str, Any]:
    seen = diagnosis.inspection
    report = compare_demographics(
        seen.votes, seen.consensus, demographics, level=seen.level, permutations=1999, evidence=seen.evidence
    )
    c = report.columns
    order = np.lexsort((-np.abs(np.nan_to_num(c["difference"].astype(float))), ~c["differs"]))
    rows = [
        {name: str(c[name][i]) for name in ("attribute", "group", "outcome")}
        | {name: int(c[name][i]) for name in ("annotators", "votes")}
        | {name: number(c[name][i]) for name in ("rate", "difference", "low", "high", "adjusted")}
        | {"differs": bool(c["differs"][i])}
        for i in order.tolist()
    ]
    overall = {str(name): number(p) for name, p in report.attributes.items()}
    return {"attributes": overall, "rows": rows, "sentences": report.sentences()}


ALLOWED, CONFIDENCE = (0.05, 0.1), 0.95
ASKED = (50, 100, 200)
"""Numbers of gold labels that are tried out where there are none."""
SHEET = 100
"""Items on the sheet."""
MIN_GOLD, MIN_ITEMS = 10, 20
MOST_VOTES = 1_000_000
"""The most votes that are fitted again without gold."""


def proof(votes: Votes, consensus: Consensus, gold: Ints | None, truth: Ints | None) -> dict[str, Any] | None:
    """The section: ``certificates`` where there is gold or truth of some items, else ``would`` and a ``sheet``.

    ``gold`` are classes that the method may have used, ``truth`` those that only measure.
    """
    N = len(consensus.items)
    known = np.full(N, -1) if truth is None else np.where(truth >= 0, truth, -1)
    known = known if gold is None else np.where(gold >= 0, gold, known)
    n = int((known >= 0).sum())
    if N < MIN_ITEMS or len(consensus.classes) < 2 or (n == N > MIN_GOLD and gold is not None):
        return None
    if MIN_GOLD <= n < N:
        return _certified(votes, consensus, known)
    sheet = draw_for_gold(consensus, min(SHEET, N)).tolist()
    would: list[dict[str, Any]] = []
    for g in (n for n in ASKED if n < N):
        for e in ALLOWED:
            share, low, high = would_prove(consensus, g, e, CONFIDENCE)
            would.append({"gold": g, "max_error": e, "share": number(share), "low": number(low), "high": number(high)})
    shown = {"confidence": CONFIDENCE, "certificates": [], "would": would, "sheet": [str(name) for name in sheet]}
    return shown if would else None


def _certified(votes: Votes, consensus: Consensus, known: Ints) -> dict[str, Any]:
    out: dict[str, Any] = {"confidence": CONFIDENCE, "certificates": [], "would": [], "sheet": [], "note": None}
    if consensus.n_gold:
        if consensus.method not in registry.METHODS or votes.n_votes > MOST_VOTES:
            out["note"] = "The labels were fitted with the gold labels, so these prove nothing of them."
            return out
        consensus = registry.create(consensus.method, **consensus.params).fit(votes).consensus_
        out["note"] = "These are labels of the same method without gold: what was fitted with it proves nothing."
    try:
        certificates = [certify(consensus, known, e, CONFIDENCE) for e in ALLOWED]
    except CrowdwiseError as error:
        return out | {"note": str(error)}
    more = 2 * int(certificates[0].gold.sum())
    out["certificates"] = [
        {
            "max_error": c.max_error, "sentence": c.sentence, "share": number(c.share),
            "released": int(c.released.sum()), "left": int((~c.released).sum()), "more": more,
            "with_more": number(c.with_more(more)),
        }
        for c in certificates
    ]  # fmt: skip
    return out | {
        "gold": int(certificates[0].gold.sum()), "wrong": int(certificates[0].wrong),
        "wrong_rate": [number(x) for x in certificates[0].wrong_rate],
    }  # fmt: skip
