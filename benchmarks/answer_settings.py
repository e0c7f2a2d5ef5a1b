"""Settings of texts and boxes chosen where they are not reported.

    python benchmarks/answer_settings.py DATA

DATA is the folder of data sets. Texts: the strengths of the two priors of ``rover`` are chosen on one set of recordings
and reported on the other, both ways. Boxes: ``min_iou``, false alarms and spread of ``box-crowd`` are chosen on
simulated crowds, and reported on ``boxes_crowd``; there ``min_iou`` also by how well boxes of annotators who were left
out are predicted. Masks: what could be had on ``masks_cells`` if parts of the truth
were known. Spans: ``span-detection`` beside each annotator of ``pico_spans`` on the texts of that annotator. Prints
the rows of docs/answers-texts.md, docs/answers-boxes.md, docs/answers-masks.md and docs/answers-spans.md.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np
from default_answers import pico_table

import crowdwise as cw
from crowdwise.answers import boxes_consensus, texts_consensus
from crowdwise.answers.masks_consensus import Band, SignedDistance, VotePatterns
from crowdwise.core.span_overlap import matches
from crowdwise.data.boxes import iou, matched

SPEECH = ("crowdspeech_dev_clean", "crowdspeech_test_other")
OF_TEXT, OF_ANNOTATOR = (10.0, 20.0, 40.0, 80.0, 160.0, 320.0), (5.0, 10.0, 25.0, 100.0)
MIN_IOU, OF_FALSE, OF_SPREAD = (0.2, 0.3, 0.4, 0.5), (1.0, 2.0, 5.0), (2.0, 4.0, 8.0)
SIMULATED = [(each, seed) for each in (3, 5, 8) for seed in (100, 101, 102)]


def texts(data):
    """Word error rates of every setting on both sets."""
    tables = [
        cw.read_texts(folder / "labels.csv", text="label", truth_path=folder / "truth.csv", on_duplicate="last")
        for folder in (data / name for name in SPEECH)
    ]
    aligned = texts_consensus.Slots.of
    out = {}
    for table, name in zip(tables, SPEECH, strict=True):
        kept = []  # the alignment does not depend on the settings

        def once(*given, kept=kept):
            kept.extend([] if kept else [aligned(*given)])
            return kept[0]

        texts_consensus.Slots.of = once
        for setting in product(OF_TEXT, OF_ANNOTATOR):
            texts_consensus.OF_TEXT, texts_consensus.OF_ANNOTATOR = setting
            out[setting, name] = 100.0 * (1.0 - cw.aggregate(table, "rover").score(table.truth))
    for chosen, reported in (SPEECH, SPEECH[::-1]):
        best = min((s for s, name in out if name == chosen), key=lambda s: out[s, chosen])
        usual, spread = out[(20.0, 100.0), reported], [value for (_, name), value in out.items() if name == reported]
        print(f"chosen on {chosen}: {best}; {reported} {out[best, reported]:.2f} (default {usual:.2f},", end=" ")
        print(f"all settings {min(spread):.2f} to {max(spread):.2f})", flush=True)


def boxes(data):
    """The setting that is best on simulated crowds, on real boxes."""
    crowds = [cw.simulate.boxes(60, annotators_per_item=each, random_state=seed) for each, seed in SIMULATED]
    real = cw.read_boxes(data / "boxes_crowd/labels.csv", truth_path=data / "boxes_crowd/truth.csv")
    found = {}

    def fitted(table, setting):
        boxes_consensus.OF_FALSE, boxes_consensus.OF_SPREAD = setting[1:]
        return cw.aggregate(table, "box-crowd", base="majority", min_iou=setting[0])

    def f1(result, truth):
        return [2.0 * t[:, 0].sum() / t[:, 1:3].sum() for t in result.matches(truth, (0.5, 0.75))]

    for setting in product(MIN_IOU, OF_FALSE, OF_SPREAD):
        found[setting] = np.mean([f1(fitted(crowd.answers, setting), crowd.truth) for crowd in crowds])
    for setting in (max(found, key=found.get), (0.3, 2.0, 4.0)):
        print(
            f"boxes {setting}: simulated {found[setting]:.4f}, boxes_crowd",
            np.round(f1(fitted(real, setting), real.truth), 3),
            flush=True,
        )
    print(f"simulated, all settings {min(found.values()):.4f} to {max(found.values()):.4f}")
    for min_iou in MIN_IOU:
        print(f"boxes_crowd, min_iou {min_iou}: boxes held out predicted, F1 {predicted(real, min_iou).round(4)}")


def predicted(table, min_iou, parts=5):
    """F1 of the consensus without a fifth of the annotators of each item, against the boxes of each of these."""
    on, who = table.looked
    u = np.random.default_rng(0).random(len(on))
    order = np.lexsort((u, on))
    part = np.empty(len(on), dtype=np.int64)
    part[order] = (np.arange(len(on)) - np.searchsorted(on, on)) % parts
    of = part[np.searchsorted(on * table.n_annotators + who, table.item * table.n_annotators + table.annotator)]
    total = np.zeros((2, 3))
    for k in range(parts):
        found = cw.aggregate(table.select(of != k), "box-crowd", base="majority", min_iou=min_iou)
        for n, m in zip(on[part == k], who[part == k], strict=True):
            mine = found.boxes[(found.box_item == n) & found.accepted]
            theirs = table.edges[(table.item == n) & (table.annotator == m) & (table.label >= 0)]
            for at, threshold in enumerate((0.5, 0.75)):
                total[at] += len(matched(iou(mine, theirs), threshold)), len(mine), len(theirs)
    return 2.0 * total[:, 0] / total[:, 1:].sum(axis=1)


def voted(masks, gold):
    """The Dice coefficient of a mask by what is chosen: a function of who marked a pixel."""
    found = VotePatterns.of_masks(masks)
    C, R, T = len(found.times), len(masks), gold.sum()
    inside = np.bincount(found.of, gold.ravel(), C)
    votes = found.votes.sum(axis=0)

    def dice(chosen):
        return 2.0 * (chosen @ inside) / (chosen @ found.times + T)

    weights = np.array([w for w in product(range(3), repeat=R) if any(w)])
    score = weights @ found.votes
    half = dice(2 * score > weights.sum(axis=1, keepdims=True))
    by_share = np.cumsum(np.stack([inside, found.times])[:, np.argsort(-inside / found.times)], axis=1)
    return {
        "five votes": dice(votes >= 5), "best mask": dice(found.votes).max(),
        "best number of votes": max(dice(votes >= k) for k in range(1, R + 1)),
        "best majority of some": half[weights.max(axis=1) == 1].max(), "best weights": half.max(),
        "best weights and threshold": max(dice(score > k).max() for k in range(2 * R)),
        "any function": (2.0 * by_share[0] / (by_share[1] + T)).max(),
    }  # fmt: skip


SHIFTS = np.arange(-0.1, 0.3, 0.01)


def masks(data):
    """Mean Dice on cells where something is chosen by the truth: bounds of what votes and distances can say."""
    stored = np.load(data / "masks_cells" / "masks.npz")
    names = sorted({key.rsplit("/", 1)[0] for key in stored})
    width = {name: stored[f"{name}/shape"][2] for name in names}
    true = {n: np.unpackbits(stored[f"{n}/gold"], axis=1)[:, : width[n]].astype(bool) for n in names}
    crowd = {n: np.unpackbits(stored[f"{n}/crowd"], axis=2)[:, :, : width[n]].astype(bool) for n in names}
    table = cw.Masks.from_records([(n, f"s{m}", mask) for n in names for m, mask in enumerate(crowd[n])])
    learned = SignedDistance()._learn(table, None)
    rows, moved = [], []
    for n, name in enumerate(table.items.tolist()):
        masks, gold = table.of_item(n), true[name]
        rows.append(voted(masks, gold))
        band = Band.of(masks, np.ones(len(masks)))
        weight, offset = learned.masks[n], learned.offset[learned.moments[n].who]
        held = (np.clip(d - offset[:, None], -band.depth, band.depth) for _, d in band.blocks())
        distance = np.concatenate([weight @ d for d in held]) / weight.sum()
        radius = np.sqrt(np.median([mask.sum() for mask in masks]) / np.pi)
        agreed, within = masks[band.drawn[0]][band.box].ravel().copy(), gold[band.box].ravel()
        dice = []
        for shift in SHIFTS:
            agreed[band.at] = distance > shift * radius
            dice.append(2.0 * (agreed & within).sum() / (agreed.sum() + gold.sum()))
        moved.append(dice)
    for name in rows[0]:
        print(f"masks, {name}: {np.mean([row[name] for row in rows]):.4f}")
    moved, part = np.array(moved), np.array([name.split("/")[0] for name in table.items.tolist()])
    print(f"masks, best shift of each image: {moved.max(axis=1).mean():.4f}")
    best = {p: moved[part != p].mean(axis=0).argmax() for p in set(part.tolist())}
    print(f"masks, shift learned from the other parts: {np.mean([moved[i, best[p]] for i, p in enumerate(part)]):.4f}")


def spans(data):
    """F1 by overlap of the consensus and of each annotator, on the texts that the annotator saw."""
    table, true = pico_table(data)
    rng, N, M = np.random.default_rng(0), len(table), table.n_annotators
    own = {tuple(pair): [] for pair in zip(table.item.tolist(), table.annotator.tolist(), strict=True)}
    rows = zip(table.item, table.annotator, table.label, table.start.tolist(), table.end.tolist(), strict=True)
    for n, m, label, start, end in rows:
        own[n, m] += [("P", start, end)] if label >= 0 else []

    def parts(some, n):
        return np.array([2.0 * matches(some, true[n]), len(some) + len(true[n])])

    both = np.array([parts(some, n) for n, some in enumerate(cw.aggregate(table).spans())])
    each = np.full((M, N, 2), np.nan)
    for (n, m), some in own.items():
        each[m, n] = parts(some, n)

    def f1(sums):
        return sums[..., 0].sum(axis=-1) / np.maximum(sums[..., 1].sum(axis=-1), 1.0)

    seen = [np.flatnonzero(np.isfinite(one[:, 0])) for one in each]
    drawn = [rng.choice(at, (1000, len(at))) for at in seen]
    gap = [np.quantile(f1(both[k]) - f1(each[m][k]), (0.025, 0.975)) for m, k in enumerate(drawn)]
    figures = np.array([(len(at), f1(each[m, at]), f1(both[at]), *gap[m]) for m, at in enumerate(seen)])
    for least in (5, 10, 20, 30):
        some = figures[figures[:, 0] >= least]
        print(f"spans, {len(some)} annotators of {least} texts or more: ahead of {(some[:, 2] > some[:, 1]).sum()},")
        print(
            f"  surely of {(some[:, 3] > 0).sum()}; the two best",
            some[np.argsort(-some[:, 1])][:2, :3].round(3).tolist(),
        )
    print(f"spans: {(figures[:, 4] < 0).sum()} of {M} annotators surely ahead of the consensus")
    total = np.nansum(each, axis=1)
    best = np.zeros((N, 2))
    for n in range(N):
        some = [m for m in range(M) if np.isfinite(each[m, n, 0])]
        best[n] = each[max(some, key=lambda m: f1((total[m] - each[m, n])[None])), n]
    k = rng.integers(0, N, (2000, N))
    low, high = np.quantile(f1(both[k]) - f1(best[k]), (0.025, 0.975))
    print(f"spans: {f1(both):.3f}; best annotator on other texts {f1(best):.3f}, behind by {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    texts(Path(sys.argv[1]))
    boxes(Path(sys.argv[1]))
    masks(Path(sys.argv[1]))
    spans(Path(sys.argv[1]))
