"""Settings of texts and boxes chosen where they are not reported.

    python benchmarks/answer_settings.py DATA

DATA is the folder of data sets. Texts: the strengths of the two priors of ``rover`` are chosen on one set of recordings
and reported on the other, both ways. Boxes: ``min_iou``, false alarms and spread of ``box-crowd`` are chosen on
simulated crowds, and reported on ``boxes_crowd``. Prints the rows of docs/answers-texts.md and docs/answers-boxes.md.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import numpy as np

import crowdwise as cw
from crowdwise.answers import boxes_consensus, texts_consensus

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


if __name__ == "__main__":
    texts(Path(sys.argv[1]))
    boxes(Path(sys.argv[1]))
