"""Which learner is the best choice without truth? Learners and settings on small data sets, scored by held-out votes.

    python benchmarks/default_learner.py --inputs FOLDER --out results.jsonl [--only labelme/max-mig*] [--seeds 0,1,2]
        [--jobs 14] [--minutes 9] [--predictions FOLDER]

A cell is (data set, setting, seed): a fit to all votes, and five fits that each leave out a fifth of the items. What a
network says of the items it has not seen is scored by the votes on them (``held_out``): the mean log-likelihood of a
vote under the confusion matrices that explain the other votes best, at the best temperature (as the learner
``ensemble`` does). Truth only measures. Every finished cell is a line of the file; a second run goes on where the first
stopped.

FOLDER holds one npz for each data set with features (``x``, ``x_test``, ``y_test``, ``item``, ``annotator``, ``label``,
``truth``, ``sizes``) or texts (``texts``, ``texts_test`` instead of x). The crowds of Max-MIG's experts on
scikit-learn's digits (``mig-high-copied``) need no file; those on 10,000 images of CIFAR-10 (``cifar10n``,
``tanno-one``) need CROWDWISE_IMAGES and CROWDWISE_DATA, and see 1,600 features of random patches.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import json
import os
import time
import warnings
from multiprocessing import get_context
from pathlib import Path

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import numpy as np

IMAGES = ("cifar10n", "tanno-one")
FOLDS, MOMENTS = 5, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
EXPERTS = [f"mig-{level}-{case}" for level in ("high", "low") for case in ("independent", "naive", "copied")]


def wide(*hidden, dropout=0.5):
    from crowdwise.learners.networks import mlp

    return functools.partial(mlp, hidden=hidden, dropout=dropout)


MIXED = {"mixup": 1.0}
RATES = {"lr": 1e-2, "schedule": "cosine"}
SETTINGS = {
    "max-mig": ("max-mig", {}),
    "max-mig-100": ("max-mig", {"epochs": 100}),
    "max-mig-linear": ("max-mig", {"network": "linear"}),
    "max-mig-256": ("max-mig", {"network": (256,)}),
    "max-mig-256-128": ("max-mig", {"network": (256, 128)}),
    "max-mig-512": ("max-mig", {"network": (512,)}),
    "max-mig-512-512": ("max-mig", {"network": (512, 512)}),
    "max-mig-mix": ("max-mig", MIXED),
    "max-mig-mix-256-128": ("max-mig", {"network": (256, 128), **MIXED}),
    "max-mig-mix.2": ("max-mig", {"mixup": 0.2}),
    "max-mig-b32": ("max-mig", {"batch_size": 32}),
    "max-mig-b256": ("max-mig", {"batch_size": 256, "epochs": 100}),
    "max-mig-lr3e-3": ("max-mig", {"lr": 3e-3}),
    "max-mig-lr3e-4": ("max-mig", {"lr": 3e-4, "epochs": 100}),
    "max-mig-crowd3e-2": ("max-mig", {"crowd_lr": 3e-2}),
    "max-mig-crowd1e-3": ("max-mig", {"crowd_lr": 1e-3}),
    "max-mig-wd1e-3": ("max-mig", {"weight_decay": 1e-3}),
    "max-mig-wd1e-2": ("max-mig", {"weight_decay": 1e-2}),
    "max-mig-ls": ("max-mig", {"label_smoothing": 0.1}),
    "max-mig-cycle": ("max-mig", {"schedule": "one-cycle", "lr": 3e-3}),
    "max-mig-tuned": ("max-mig", {"prior": "tuned"}),
    "max-mig-smooth.1": ("max-mig", {"smoothing": 0.1}),
    "aggnet": ("aggnet", {}),
    "aggnet-linear": ("aggnet", {"network": "linear"}),
    "aggnet-256-128": ("aggnet", {"network": (256, 128)}),
    "aggnet-mix": ("aggnet", MIXED),
    "aggnet-wd1e-2": ("aggnet", {"weight_decay": 1e-2}),
    "aggnet-ls": ("aggnet", {"label_smoothing": 0.1}),
    "crowd-layer": ("crowd-layer", {}),
    "crowd-layer-256-128": ("crowd-layer", {"network": (256, 128), **RATES}),
    "crowd-layer-rates": ("crowd-layer", RATES),
    "crowd-layer-mix": ("crowd-layer", MIXED),
    "crowd-layer-wd1e-2": ("crowd-layer", {"weight_decay": 1e-2}),
    "geocrowdnet-f": ("geocrowdnet-f", {}),
    "geocrowdnet-f-256-128": ("geocrowdnet-f", {"network": (256, 128), **RATES}),
    "geocrowdnet-f-small": ("geocrowdnet-f", {"weight": 1e-3}),
    "geocrowdnet-f-small-rates": ("geocrowdnet-f", {"weight": 1e-3, "network": (256, 128), **RATES}),
    "geocrowdnet-f-mix": ("geocrowdnet-f", MIXED),
    "trace-x": ("trace-x", {}),
    "trace-x-mix": ("trace-x", MIXED),
    "trace-x-256-128": ("trace-x", {"network": (256, 128)}),
    "annot-mix": ("annot-mix", {}),
    "annot-mix-256-128": ("annot-mix", {"network": (256, 128)}),
    "annot-mix-slow": ("annot-mix", {"lr": 1e-3}),
    "deep-mf": ("deep-mf", {}),
    "bayes-dgc": ("bayes-dgc", {}),
    "conal": ("conal", {}),
    "trace": ("trace", {}),
    "coinnet": ("coinnet", {}),
    "doctor-net": ("doctor-net", {}),
    "two-stage:dawid-skene": ("two-stage", {"aggregator": "dawid-skene"}),
    "two-stage:anchored": ("two-stage", {"aggregator": "anchored"}),
    **{
        f"{key}-diagonal{value:g}": (key, {"diagonal": value})
        for key in ("ccem", "geocrowdnet-f", "geocrowdnet-w", "coinnet", "crowd-layer", "unionnet", "crowd-ar")
        for value in (1.0, 2.5, 4.4)
    },
    "ensemble": ("ensemble", {}),
    "distil:mig": ("distil", {"of": "max-mig"}),
    "distil:mig-hard": ("distil", {"of": "max-mig", "labels": "hard"}),
    "distil:mig-mix": ("distil", {"of": "max-mig", **MIXED}),
    "distil:mig-linear": ("distil", {"of": "max-mig", "network": "linear"}),
    "distil:mig-256-128": ("distil", {"of": "max-mig", "network": (256, 128)}),
    "distil2:mig": ("distil", {"of": "distil:mig"}),
    "distil2:mig-256-128": ("distil", {"of": "distil:mig-256-128", "network": (256, 128)}),
}  # fmt: skip
"""Name -> learner and what is not its default; a network given as sizes is an mlp of that many hidden units. Of
``distil``: the setting whose predictions for unseen items are, with the votes, the labels of a new network."""


# The data -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def load(inputs, data, seed):
    """Inputs, votes, inputs and classes to test on."""
    from crowdwise.data.votes import Votes

    if data in EXPERTS:
        from claims_information import digits_crowd

        _, expertise, case = data.split("-")
        return digits_crowd(case, expertise, seed)
    if data in IMAGES:
        return images(inputs, data, seed)
    with np.load(inputs / f"{data.partition('-')[0]}.npz") as z:
        N, M, K = z["sizes"]
        votes = Votes.from_codes(
            z["item"], z["annotator"], z["label"], items=np.arange(N), annotators=np.arange(M), classes=np.arange(K),
            truth=z["truth"],
        )  # fmt: skip
        if "texts" in z:
            x, x_test = grams(inputs) if data.endswith("-grams") else words(z["texts"], z["texts_test"])
        else:
            x, x_test = z["x"].astype(np.float32), z["x_test"].astype(np.float32)
        return x, votes, x_test, z["y_test"]


def words(train, test):
    """TF-IDF of words in two training texts or more, as on the page of learners."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(min_df=2)
    x = vectors.fit_transform(train.tolist())
    return x.astype(np.float32), vectors.transform(test.tolist()).astype(np.float32)


def grams(inputs, size=1500):
    """TF-IDF of words, pairs of words and groups of 2 to 5 letters, on its first principal axes (not standardised)."""
    import scipy.sparse as sp
    from sklearn.feature_extraction.text import TfidfVectorizer

    file = inputs / "grams.npz"
    if not file.is_file():
        with np.load(inputs / "sentiment.npz") as z:
            train, test = z["texts"].tolist(), z["texts_test"].tolist()
        parts = [
            TfidfVectorizer(min_df=2, ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\b\w[\w']*\b"),
            TfidfVectorizer(min_df=3, analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
        ]
        a = sp.hstack([part.fit_transform(train) for part in parts]).tocsr()
        b = sp.hstack([part.transform(test) for part in parts]).tocsr()
        gram = (a @ a.T).toarray()
        value, axis = np.linalg.eigh(gram)
        value, axis = value[::-1][:size], axis[:, ::-1][:, :size]
        axis = axis / np.sqrt(value)
        found = [part @ (a.T @ axis) for part in (a, b)]
        scale = np.sqrt((found[0] ** 2).mean())
        np.savez(file, x=(found[0] / scale).astype(np.float32), x_test=(found[1] / scale).astype(np.float32))
    with np.load(file) as z:
        return z["x"], z["x_test"]


def images(inputs, data, seed, n=10_000):
    """The first images of CIFAR-10 with people's votes, or with one vote each of Tanno's annotators."""
    from papers_data import cifar10, slots

    from crowdwise.simulate import four_annotators

    folder = Path(os.environ["CROWDWISE_IMAGES"])
    pixels, y = cifar10(folder)
    file, place = inputs / "patches.npz", np.r_[:n, 50_000:60_000]
    if not file.is_file():
        x = patches(pixels[place])
        np.savez(file, x=x[:n].astype(np.float16), x_test=x[n:].astype(np.float16))
    with np.load(file) as z:
        x, x_test = z["x"].astype(np.float32), z["x_test"].astype(np.float32)
    if data == "cifar10n":
        with np.load(Path(os.environ["CROWDWISE_DATA"]) / "cifar10n" / "cifar10n.npz") as z:
            votes = slots(np.stack([z[f"worker{m}"][:n] for m in (1, 2, 3)], axis=1), y[:n])
    else:
        votes = four_annotators(truth=y[:n], votes_per_item=1, random_state=seed).votes
    return x, votes, x_test, y[50_000:]


def patches(pixels, filters=400, size=6, threshold=0.25):
    """N x 4 filters: how much four quarters of each image look like whitened patches drawn from the first images."""
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    x = torch.as_tensor(pixels).permute(0, 3, 1, 2)

    def cut(some):
        rows = functional.unfold(some.float() / 255.0, size).transpose(1, 2)
        rows = rows - rows.mean(dim=2, keepdim=True)
        return rows / (rows.var(dim=2, keepdim=True) + 0.01).sqrt()

    sample = cut(x[:1000]).reshape(-1, 3 * size * size)
    sample = sample[torch.randperm(len(sample))[:100_000]]
    mean = sample.mean(dim=0)
    value, axis = torch.linalg.eigh(torch.cov(sample.T))
    white = axis @ torch.diag((value + 0.1).rsqrt()) @ axis.T
    own = (sample[:filters] - mean) @ white
    own = own / own.norm(dim=1, keepdim=True)
    found, side = [], 32 - size + 1
    for part in x.split(50):
        z = (cut(part) - mean) @ white
        z = ((z @ own.T) - threshold * z.norm(dim=2, keepdim=True)).clamp_min(0.0)
        z = z.transpose(1, 2).reshape(len(part), filters, side, side)
        found.append(functional.adaptive_avg_pool2d(z, 2).reshape(len(part), -1))
    return torch.cat(found).numpy()


def prepare(inputs, names):
    """Make what takes a while once, before the processes start."""
    import torch

    torch.set_num_threads(min(8, os.cpu_count() or 1))
    for name in names:
        if name in IMAGES or name.endswith("-grams"):
            began = time.time()
            load(inputs, name, 0)
            print(name, "is ready after", round(time.time() - began), "s", flush=True)


# A cell -------------------------------------------------------------------------------------------------------------


def learner_of(key, settings, seed):
    from crowdwise import registry

    settings = dict(settings)
    if isinstance(settings.get("network"), (tuple, list)):
        settings["network"] = wide(*settings["network"])
    return registry.find(key, inputs=True).create(random_state=seed, **settings)


def fit(key, settings, seed, x, votes, others):
    """Fit, and what the network said at each moment of training of some other inputs (a list of N x K at each)."""
    from crowdwise.learners.devices import probabilities
    from crowdwise.learners.inputs import as_inputs

    learner = learner_of(key, settings, seed)
    epochs = getattr(learner, "epochs", 1)
    at = {max(1, round(moment * epochs)) for moment in MOMENTS}
    inputs, seen = [as_inputs(other) for other in others], []

    def note(epoch):
        if epoch.epoch in at:
            seen.append([probabilities(learner._trainer.log_probs(other)) for other in inputs])
        return False

    learner.fit(x, votes, items=votes.items, callback=note)
    seen[-1:] = [[learner.predict_proba(other) for other in others]]
    return learner, seen


def labels_from(inputs, data, name, seed, predictions):
    """N x K labels from what a setting says of unseen items and from the votes, as the learner ensemble makes them."""
    from crowdwise.learners import held_out_votes as held

    _, votes, _, _ = load(inputs, data, seed)
    rows = held.VoteList.of(votes)
    found = held.scored(unseen(inputs, data, name, seed, predictions), rows, folds_of(votes, seed))
    return found.labels(rows)[0]


def folds_of(votes, seed):
    return np.random.default_rng([seed, 7]).permutation(len(votes)) % FOLDS


def unseen(inputs, data, name, seed, predictions):
    """N x K: what a setting says of unseen items after its last epoch, from its file where there is one."""
    file = None if predictions is None else predictions / file_name(data, name, seed)
    if file is not None and file.is_file():
        with np.load(file) as z:
            f = np.exp(z["oof"][-1] / -16.0)
            return f / f.sum(axis=1, keepdims=True)
    return cross_fit(inputs, data, name, seed, predictions)[1][-1]


def file_name(data, name, seed):
    return f"{data}~{name.replace(':', '_')}~{seed}.npz"


def soft_votes(q):
    """Soft labels as weighted votes of one annotator."""
    from crowdwise.data.votes import Votes

    item, label = np.nonzero(q > 1e-3)
    return Votes.from_codes(
        item, np.zeros(len(item), dtype=np.int32), label, items=np.arange(len(q)), annotators=["labels"],
        classes=np.arange(q.shape[1]), weight=q[item, label], on_duplicate="all",
    )  # fmt: skip


@functools.lru_cache(maxsize=8)
def cross_fit(inputs, data, name, seed, predictions):
    """Moments x N x K: of items each network has not seen; of test items, the mean of the five; of a fit to all."""
    key, settings = SETTINGS[name]
    settings = dict(settings) | ({"scale": False} if data.endswith("-grams") else {})
    x, votes, x_test, _ = load(inputs, data, seed)
    if key == "distil":
        votes = soft_votes(labels_from(inputs, data, settings.pop("of"), seed, predictions))
        key, settings = "two-stage", {"labels": "soft"} | settings
    item = np.repeat(np.arange(len(votes)), np.diff(votes.indptr))
    fold = folds_of(votes, seed)
    oof = folds = None
    for j in range(FOLDS):
        _, seen = fit(key, settings, seed * 100 + j, x, votes.select(fold[item] != j), [x[fold == j], x_test])
        if oof is None:
            oof, folds = np.zeros((len(seen), x.shape[0], votes.n_classes)), 0.0
        for at, (own, _) in enumerate(seen):
            oof[at, fold == j] = own
        folds = folds + np.stack([test for _, test in seen]) / FOLDS
    learner, seen = fit(key, settings, seed, x, votes, [x_test])
    return learner, oof, folds, np.stack([test for (test,) in seen]), fold


def whole(x, votes, x_test, y_test, seed, data):
    """The default learner: one fit, which splits the items itself."""
    began = time.time()
    learner = learner_of("ensemble", {"scale": False} if data.endswith("-grams") else {}, seed).fit(
        x, votes, items=votes.items
    )
    right, known = learner.predict_proba(x_test).argmax(1) == y_test, votes.truth >= 0
    q = learner.consensus_.posterior
    return {
        "accuracy_full": [round(float(right.mean()), 5)],
        "accuracy_consensus": round(float((q.argmax(1) == votes.truth)[known].mean()), 5),
        "chosen": learner.chosen_, "scores": {name: round(score, 4) for name, score in learner.scores_.items()},
        "seconds": round(time.time() - began, 1),
    }  # fmt: skip


def packed(f):
    """Probabilities as bytes: -16 log p."""
    return np.clip(np.round(-16.0 * np.log(np.maximum(f, 1e-9))), 0, 255).astype(np.uint8)


def work(given):
    """The line of a cell, or None where time is up."""
    inputs, data, name, seed, predictions, deadline = given
    if deadline is not None and time.time() > deadline:
        return None
    import torch

    from crowdwise.learners import held_out_votes

    torch.set_num_threads(1)
    began = time.time()
    row = {"cell": f"{data}/{name}/{seed}", "data": data, "setting": name, "seed": seed}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, votes, x_test, y_test = load(inputs, data, seed)
            if name == "ensemble":
                return row | whole(x, votes, x_test, y_test, seed, data)
            learner, oof, folds, full, fold = cross_fit(inputs, data, name, seed, predictions)
            rows = held_out_votes.VoteList.of(votes)
            scores = [
                (
                    held_out_votes.mean_log(held_out_votes.crowd_vote_probs(f, rows, fold), rows),
                    held_out_votes.scored(f, rows, fold).temperature,
                )
                for f in oof
            ]
    except Exception as error:
        return row | {"problem": f"{type(error).__name__}: {error}"[:300]}
    right = {part: [round(float((f.argmax(1) == y_test).mean()), 5) for f in found]
             for part, found in (("full", full), ("folds", folds))}  # fmt: skip
    q = np.asarray(learner.consensus_.posterior)
    best = int(np.argmax([score for score, _ in scores]))
    if predictions is not None:
        predictions.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            predictions / file_name(data, name, seed), at=[best, len(scores) - 1], q=packed(q),
            oof=packed(oof[[best, -1]]), folds=packed(folds[[best, -1]]), full=packed(full[[best, -1]]),
        )  # fmt: skip
    known = votes.truth >= 0
    return row | {
        "held_out": [round(float(score), 5) for score, _ in scores], "temperature": [t for _, t in scores],
        "accuracy_full": right["full"], "accuracy_folds": right["folds"],
        "accuracy_unseen": [round(float((f.argmax(1) == votes.truth)[known].mean()), 5) for f in oof],
        "accuracy_consensus": round(float((q.argmax(1) == votes.truth)[known].mean()), 5),
        "best": best, "seconds": round(time.time() - began, 1),
    }  # fmt: skip


# The run ------------------------------------------------------------------------------------------------------------


def finished(file):
    done = set()
    if file.is_file():
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if "problem" not in row:
                done.add(row["cell"])
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--predictions", type=Path)
    parser.add_argument("--only", default="*", help="patterns of data/setting, with commas between")
    parser.add_argument("--data", default="labelme,music_genre,digits," + ",".join(EXPERTS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    given = parser.parse_args()
    deadline = None if given.minutes is None else time.time() + 60.0 * given.minutes
    done, patterns = finished(given.out), given.only.split(",")
    todo = [
        (given.inputs, data, name, int(seed), given.predictions, deadline)
        for seed in given.seeds.split(",") for name in SETTINGS for data in given.data.split(",")
        if any(fnmatch.fnmatchcase(f"{data}/{name}", pattern) for pattern in patterns)
        and f"{data}/{name}/{seed}" not in done
    ]  # fmt: skip
    print(len(todo), "cells to do", flush=True)
    prepare(given.inputs, sorted({cell[1] for cell in todo}))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with get_context("spawn").Pool(given.jobs) as pool, given.out.open("a", encoding="utf-8") as out:
        for row in pool.imap_unordered(work, todo):
            if row is None:
                continue
            out.write(json.dumps(row) + "\n")
            out.flush()
            count += 1
            if count % 20 == 0 or "problem" in row:
                print(count, row.get("problem") or row["cell"], flush=True)
    print(count, "cells done", flush=True)


if __name__ == "__main__":
    main()
