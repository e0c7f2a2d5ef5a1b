"""Figures of the papers that need no images: BayesDGC 3 and 4, deepBP 4, 8 and 10, parts of the tutorial.

    python benchmarks/claims_figures.py --data FOLDER --out FILE.json [--jobs 8] [--minutes 9] [--only binary]

==================  ==================================================================================================
``binary``          BayesDGC 3, 4: each class of LabelMe and of music against the rest, and four sets of texts: 22
                    problems, with a part of the votes. The k items that a method ranks first are positive, where k is
                    the true number
``overconfidence``  deepBP 4: mean field and belief propagation with one extreme spammer and a wrong prior
``samples``         deepBP 8: belief propagation by the number of samples, beside the exact integral
``spammers``        deepBP 10: the annotators of temp and rte who label the most
``bandit``          the tutorial's choice of annotators as a bandit: the regret of 900 votes of 20 annotators, each vote
                    counting by how much the best annotator is more accurate than the one who was asked
``process``         the tutorial's Gaussian process from crowds: ``raykar`` with one (Nystroem's approximation, 200
                    points, the median distance for a length scale) beside softmax regression, and both on vote shares
``rewards``         the tutorial's mixture of reward models: held-out answers of annotators, by one network and several
``words``           the tutorial's conditional random field within EM: names in the sentences of ``rte`` (runs of words
                    with a capital, which is taken away), tagged by simulated annotators who miss, move, invent spans
``inputs``          the tutorial's corrupted inputs and attacked items: a share of the items of LabelMe and music has
                    the features of other items, or one wrong class from 80 % of its annotators
==================  ==================================================================================================

A line of the file is one task (a crowd, a share of its votes, a seed); what is there is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from papers_runs import append
from tables import markdown

import crowdwise as cw
from crowdwise import registry
from crowdwise.data.votes import Votes
from crowdwise.errors import CrowdwiseError

SHARES = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
METHODS = ("majority", "dawid-skene", "minimax", "ibcc")
LEARNERS = ("raykar", "bayes-dgc")
PRIORS = ((2.0, 1.0), (1.0, 0.5), (0.5, 0.25))
BANDITS = ("random", "entropy-random", "tutorial", "ucb", "thompson")
TEXTS = (("sentiment_polarity", "1"), ("rte", "1"), ("rules_youtube", "1"), ("rules_trec", "1"))
"""Sets of texts, and their positive class; of rules_trec that of most items."""
LEARNED = ("two-stage", "ccem", "geocrowdnet-f", "coinnet", "aggnet", "max-mig")
SAMPLES = (10, 25, 50, 100, 200, 400)


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def of_texts(data: Path, name: str) -> tuple[Any, list[str]]:
    """100 factors of the words of 1,000 texts, and their names. Pairs of texts also have their shared words."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    all_rows = rows(data / name / "texts.csv")
    some = [all_rows[n] for n in np.random.default_rng(0).permutation(len(all_rows))[:1000]]
    both = [(row["text"].lower(), row.get("hypothesis", "").lower()) for row in some]
    found = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform([" ".join(pair) for pair in both])
    shared = [len(set(a.split()) & set(b.split())) / max(len(set(b.split())), 1) for a, b in both]
    x = np.column_stack([TruncatedSVD(100, random_state=0).fit_transform(found), shared])
    return x[:, : None if any(shared) else 100], [row["task"] for row in some]


def features(data: Path, name: str) -> tuple[Any, list[str]]:
    """Features of items, and their names."""
    if not (data / name / "features.npz").is_file():
        return of_texts(data, name)
    with np.load(data / name / "features.npz") as stored:
        x = stored["x_train"]
        return x, [str(i) for i in stored["id_train"]] if "id_train" in stored else [str(i) for i in range(len(x))]


def against_rest(data: Path, name: str, label: str) -> tuple[Any, Votes]:
    """Features, and the votes as one class against all others."""
    x, items = features(data, name)
    said = [row for row in rows(data / name / "labels.csv") if row["task"] in set(items)]
    truth = {row["task"]: row["label"] for row in rows(data / name / "truth.csv")}
    who = sorted({row["worker"] for row in said})
    place, person = {item: n for n, item in enumerate(items)}, {worker: m for m, worker in enumerate(who)}
    votes = Votes.from_codes(
        np.array([place[row["task"]] for row in said]), np.array([person[row["worker"]] for row in said]),
        np.array([int(row["label"] == label) for row in said]), items=items, annotators=who, classes=["rest", label],
        truth=np.array([int(truth[item] == label) for item in items], dtype=np.int32), on_duplicate="last",
    )  # fmt: skip
    return x, votes


def ranked(q: Any, truth: Any) -> dict[str, float]:
    """Accuracy and F1 where the k most probable items are positive, k the true number; ties by position."""
    k = int(truth.sum())
    found = np.zeros(len(truth), dtype=bool)
    found[np.argsort(-q, kind="stable")[:k]] = True
    return {"accuracy": float((found == truth).mean()), "f1": float((found & (truth == 1)).sum() / k)}


def binary(data: Path, name: str, label: str, share: float, seed: int) -> dict[str, Any]:
    x, votes = against_rest(data, name, label)
    rng = np.random.default_rng(seed)
    truth = np.asarray(votes.truth)
    part = votes.select(rng.permutation(votes.n_answers) < round(share * votes.n_answers))
    shuffle = rng.permutation(len(truth))  # ties are broken at random, the same way for all methods
    found: dict[str, Any] = {"positives": float(truth.mean())}
    for key in METHODS:
        q = cw.aggregate(part, key).posterior[:, 1]
        found[key] = ranked(q[shuffle], truth[shuffle])
    for key in LEARNERS:
        more = {"device": "cpu"} if key == "bayes-dgc" else {}
        learner = registry.find(key, inputs=True).create(random_state=seed, **more).fit(x, part, items=part.items)
        found[key] = ranked(learner.consensus_.posterior[:, 1][shuffle], truth[shuffle])
    return found


def overconfidence(seed: int) -> dict[str, Any]:
    crowd = cw.simulate.regular(
        1000, l=3, r=4, workers="dirichlet", a=2.0, b=1.0, n_extreme_spammers=1, random_state=seed
    )
    found: dict[str, Any] = {}
    for key in ("bp", "mf"):
        result = cw.aggregate(crowd.votes, key, prior=(2.0, 1.4))
        edges = np.histogram(result.posterior[:, 1], bins=20, range=(0.0, 1.0))[0]
        found[key] = {
            "accuracy": result.score(crowd.truth), "marginals": edges.tolist(),
            "spammer": np.diagonal(result.confusion[-1]).tolist(),
        }  # fmt: skip
    return found


class Drawn:
    """A Dirichlet prior of two-class matrices that is drawn from: the messages are then sampled."""

    def __init__(self, right: float, wrong: float) -> None:
        self.right, self.wrong = right, wrong

    def __call__(self, rng: np.random.Generator, size: int) -> Any:
        w = rng.beta(self.right, self.wrong, size=(size, 2))
        return np.stack([np.stack([w[:, 0], 1 - w[:, 0]], axis=1), np.stack([1 - w[:, 1], w[:, 1]], axis=1)], axis=1)


def samples(right: float, wrong: float, seed: int) -> dict[str, Any]:
    crowd = cw.simulate.regular(1000, l=3, r=4, workers="dirichlet", a=right, b=wrong, random_state=seed)
    exact = cw.aggregate(crowd.votes, "bp", prior=(right, wrong)).score(crowd.truth)
    drawn = Drawn(right, wrong)
    by = {
        S: cw.aggregate(crowd.votes, "bp", prior=drawn, samples=S, random_state=seed).score(crowd.truth)
        for S in SAMPLES
    }
    return {"exact": exact, "sampled": by}


def spammers(data: Path, name: str) -> dict[str, Any]:
    said = rows(data / name / "labels.csv")
    truth = {row["task"]: row["label"] for row in rows(data / name / "truth.csv")}
    count: dict[str, list[bool]] = {}
    for row in said:
        count.setdefault(row["worker"], []).append(truth[row["task"]] == row["label"])
    most = sorted(count.values(), key=len, reverse=True)
    return {"votes": [len(one) for one in most], "accuracy": [float(np.mean(one)) for one in most[:8]]}


def bandit(strategy: str, seed: int) -> dict[str, Any]:
    from crowdwise.active.replays import replay

    crowd = cw.simulate.one_coin(300, n_annotators=20, n_classes=2, a=4.0, b=2.0, random_state=seed)
    w = crowd.parameters["accuracy"]
    price = w.max() - w + 1e-9  # these strategies do not look at prices, so the cost of votes is their regret
    curve = replay(crowd.votes, crowd.truth, lambda: registry.create("one-coin"), strategy, price=price, batch=0.01,
                   share=0.15, random_state=seed)  # fmt: skip
    return {"votes": curve.votes.tolist(), "regret": curve.cost.tolist(), "accuracy": curve.accuracy.tolist()}


def named_words(data: Path) -> tuple[Any, Any, Any]:
    """Words of sentences in small letters, where these begin, and tags: names have a capital and do not begin one."""
    import re

    words, starts, truth = [], [0], []
    for row in rows(data / "rte" / "texts.csv"):
        for sentence in re.split(r"(?<=[.!?])\s+", row["text"].replace("&apos;", "'")):
            said = re.findall(r"\w[\w'-]*|[^\w\s]", sentence)
            if 5 <= len(said) <= 60:
                name = [False, *(word[0].isupper() for word in said[1:])]
                truth += [2 if not n else int(before) for n, before in zip(name, [False, *name], strict=False)]
                words += [word.lower() for word in said]
                starts.append(len(words))
    return np.array(words, dtype=object), np.array(starts), np.array(truth, dtype=np.int32)


def words(data: Path, n: int, seed: int) -> dict[str, Any]:
    from dataclasses import replace

    from crowdwise.simulate import answer_crowds as crowds

    text, starts, truth = named_words(data)
    rng = np.random.default_rng(seed)
    able = rng.beta(2.5, 1.5, size=30)
    worst = {"miss": 0.7, "shift": 0.4, "mislabel": 0.0, "spurious": 0.1}  # as in simulate.bio_tags
    rate = {name: (1.0 - able) * share for name, share in worst.items()}
    classes = ["B-name", "I-name", "O"]
    pair, token, who = crowds._who(starts, 30, n, rng)
    label = crowds._spoiled(truth, starts, classes, pair, token, who, rate, rng)
    tags = replace(crowds._collect(starts, token, who, label, classes, 30, truth), words=text)
    each = {
        "majority": lambda: cw.aggregate(tags.votes, "majority"),
        "token-dawid-skene": lambda: cw.aggregate(tags, "token-dawid-skene"),
        "hmm-crowd": lambda: cw.aggregate(tags, "hmm-crowd"),
        "hmm-crowd, words": lambda: cw.aggregate(tags, "hmm-crowd", words=True, tol=1e-5),
    }
    return {name: float(cw.metrics.span_scores(fit(), tags)["f1"]) for name, fit in each.items()}


def whole(data: Path, name: str) -> tuple[Any, Votes, Any, Any]:
    """Features and votes, and features and codes of the classes of test items."""
    x, items = features(data, name)
    said, place = rows(data / name / "labels.csv"), {item: n for n, item in enumerate(items)}
    with np.load(data / name / "features.npz") as stored:
        x_test, y_test = stored["x_test"], stored["y_test"].astype(str)
    classes, who = sorted({row["label"] for row in said} | set(y_test)), sorted({row["worker"] for row in said})
    votes = Votes.from_codes(
        np.array([place[row["task"]] for row in said]), np.array([who.index(row["worker"]) for row in said]),
        np.array([classes.index(row["label"]) for row in said]), items=items, annotators=who, classes=classes,
        on_duplicate="last",
    )  # fmt: skip
    return x, votes, x_test, np.array([classes.index(y) for y in y_test])


def inputs(data: Path, name: str, kind: str, share: float, seed: int) -> dict[str, Any]:
    """Test accuracy where a share of the items has other features, or one wrong class from 80 % of its annotators."""
    from sklearn.metrics import roc_auc_score

    x, votes, x_test, y_test = whole(data, name)
    rng = np.random.default_rng(seed)
    bad = rng.permutation(len(x)) < round(share * len(x))
    if kind == "inputs":
        x = x.copy()
        x[bad] = x[rng.integers(0, len(x), bad.sum())]
    else:
        wrong = rng.integers(0, votes.n_classes, len(x))[votes.item]
        turned = bad[votes.item] & (rng.random(votes.n_answers) < 0.8)
        label = np.where(turned, wrong, votes.label)
        votes = Votes.from_codes(votes.item, votes.annotator, label, items=votes.items, annotators=votes.annotators,
                                 classes=votes.classes, on_duplicate="last")  # fmt: skip
    found: dict[str, Any] = {}
    for key in LEARNED:
        more = {"aggregator": "majority"} if key == "two-stage" else {}
        learner = registry.find(key, inputs=True).create(random_state=seed, device="cpu", **more)
        learner.fit(x, votes, items=votes.items)
        found[key] = float((learner.predict_proba(x_test).argmax(axis=1) == y_test).mean())
        score = learner.consensus_.item_columns.get("outlier")
        if score is not None and bad.any():
            found["auc"] = float(roc_auc_score(bad, score))
    return found


def process(data: Path, name: str, seed: int) -> dict[str, Any]:
    """Test accuracy of softmax regression and of a Gaussian process, within EM and on majority labels."""
    from scipy.spatial.distance import pdist
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    x, votes, x_test, y_test = whole(data, name)
    some = ((x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9))[:300]
    gamma = 0.5 / np.median(pdist(some, "sqeuclidean"))
    models = {
        "logistic": "logistic",
        "process": make_pipeline(Nystroem(gamma=gamma, n_components=200, random_state=seed),
                                 LogisticRegression(C=10.0, max_iter=500)),
    }  # fmt: skip
    found = {}
    for label, model in models.items():
        for key, more in (("raykar", {}), ("majority", {"max_iter": 1})):  # the first round is on vote shares
            learner = registry.find("raykar", inputs=True).create(classifier=model, random_state=seed, **more)
            learner.fit(x, votes, items=votes.items)
            found[f"{key}, {label}"] = float((learner.predict_proba(x_test).argmax(axis=1) == y_test).mean())
    return found


def rewards(data: Path, kind: str, seed: int) -> dict[str, Any]:
    """Mean log likelihood and accuracy of held-out answers (three in ten), by one network and by mixtures."""
    rng = np.random.default_rng(seed)
    if kind == "simulated":
        x = rng.normal(size=(100, 10))
        left, who = rng.integers(0, 100, 4000), rng.integers(0, 60, 4000)
        right = (left + rng.integers(1, 100, 4000)) % 100
        w = rng.normal(size=(2, 10))
        z = ((x[left] - x[right]) * w[who % 2]).sum(axis=1)
        lost = rng.random(4000) > 1 / (1 + np.exp(-z))
    else:
        names, left, right, who, lost = [], [], [], [], []
        texts = {row["id"]: row["text"] for row in rows(data / kind / "items.csv") if row["text"].strip()}
        for row in rows(data / kind / "labels.csv"):
            a, b = row["task"].split("_", 1)
            if a in texts and b in texts and row["label"] != "equal":
                names += [a, b]
                who.append(row["worker"])
                lost.append(row["label"] == "a2")
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        items, code = np.unique(names, return_inverse=True)
        words = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform([texts[i] for i in items])
        x = np.column_stack(
            [TruncatedSVD(50, random_state=0).fit_transform(words), [np.log(len(texts[i])) for i in items]]
        )
        who, lost = np.unique(who, return_inverse=True)[1], np.array(lost)
        often = np.bincount(who)[who] >= 20
        left, right, lost = code[0::2][often], code[1::2][often], lost[often]
        who = np.unique(who[often], return_inverse=True)[1]
    held = rng.random(len(who)) < 0.3
    table = [cw.Comparisons.from_codes(left[at], right[at], who[at], lost[at].astype(int), items=range(len(x)),
                                       annotators=range(int(who.max()) + 1)) for at in (~held, held)]  # fmt: skip
    train, test = table
    settings = {"network": "linear", "epochs": 20, "lr": 0.01, "device": "cpu"}
    found = {"annotators": int(who.max()) + 1, "answers": len(who)}
    for G in (1, 2, 3):
        models, member = cw.reward_groups(x, train, G, random_state=seed, **settings)
        each = np.stack(
            [model.predict_proba(x, test)[np.arange(len(test.outcome)), test.outcome] for model in models], axis=1
        )
        p = (member[test.annotator] * each).sum(axis=1)
        found[f"{G}"] = {"log_likelihood": float(np.log(p).mean()), "accuracy": float((p > 0.5).mean())}
    own = cw.DeepBT(random_state=seed, **settings).fit(x, train)
    eta = own.confusion_[test.annotator, 0, 0]
    p = own.predict_proba(x, test)[np.arange(len(test.outcome)), test.outcome]
    p = eta * p + (1 - eta) * (1 - p)
    found["reliability"] = {"log_likelihood": float(np.log(p).mean()), "accuracy": float((p > 0.5).mean())}
    return found


def tasks(data: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Name and arguments of all tasks, in the order in which they are run."""
    for name in ("temp", "rte"):
        yield f"spammers/{name}", (data, name)
    for seed in range(3):
        for name in ("labelme", "music_genre"):
            for label in sorted({row["label"] for row in rows(data / name / "truth.csv")}):
                for share in SHARES:
                    yield f"binary/{name}/{label}/{share:g}/{seed}", (data, name, label, share, seed)
        for name, label in TEXTS:
            for share in SHARES:
                yield f"binary/{name}/{label}/{share:g}/{seed}", (data, name, label, share, seed)
        for name in ("labelme", "music_genre"):
            yield f"process/{name}/{seed}", (data, name, seed)
            for kind, share in (("none", 0.0), ("inputs", 0.1), ("inputs", 0.3), ("items", 0.1), ("items", 0.3)):
                yield f"inputs/{name}/{kind}/{share:g}/{seed}", (data, name, kind, share, seed)
        for kind in ("simulated", "convarg_pairs"):
            yield f"rewards/{kind}/{seed}", (data, kind, seed)
    for seed in range(3):
        for n in (1, 2, 3, 5):
            yield f"words/{n}/{seed}", (data, n, seed)
    for seed in range(10):
        for strategy in BANDITS:
            yield f"bandit/{strategy}/{seed}", (strategy, seed)
    for seed in range(100):
        yield f"overconfidence/{seed}", (seed,)
    for seed in range(20):
        for right, wrong in PRIORS:
            yield f"samples/{right:g}/{seed}", (right, wrong, seed)


PARTS = {
    part.__name__: part for part in (bandit, binary, inputs, overconfidence, process, rewards, samples, spammers, words)
}


def work(given: tuple[str, tuple[Any, ...], float]) -> dict[str, Any] | None:
    """The line of a task; None where time is up."""
    name, arguments, deadline = given
    if time.time() > deadline:
        return None
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = PARTS[name.partition("/")[0]](*arguments)  # type: ignore[operator]
        except CrowdwiseError as error:
            return {"task": name, "problem": str(error)}
    return {"task": name, **found, "seconds": round(time.perf_counter() - began, 2)}


def tables(found: list[dict[str, Any]]) -> Iterator[str]:
    """The figures as Markdown."""
    part: dict[str, list[dict[str, Any]]] = {name: [] for name in PARTS}
    for row in found:
        if "problem" not in row:
            part[row["task"].partition("/")[0]].append(row)
    for measure in ("accuracy", "f1"):
        lines = []
        for key in (*METHODS, *LEARNERS):
            line = [f"`{key}`"]
            for share in SHARES:
                some = [r[key][measure] for r in part["binary"] if r["task"].split("/")[3] == f"{share:g}"]
                line.append(f"{100 * np.mean(some):.1f}" if some else "")
            lines.append(line)
        yield f"{measure}, {len(part['binary'])} runs"
        yield markdown(["", *(f"{100 * s:g} %" for s in SHARES)], lines)
    lines = []
    for key in ("bp", "mf") if part["overconfidence"] else ():
        runs = [r[key] for r in part["overconfidence"]]
        score = 100 * np.sort([r["accuracy"] for r in runs])
        q = np.sum([r["marginals"] for r in runs], axis=0)
        failed = [0.5 + abs(np.mean(r["spammer"]) - 0.5) for r in runs if r["accuracy"] < 0.6]
        figures = [score.mean(), score[0], np.quantile(score, 0.1), np.median(score)]
        lines.append([
            f"`{key}`", *(f"{x:.1f}" for x in figures), f"{100 * (q[0] + q[-1]) / q.sum():.0f} %", str(len(failed)),
            f"{np.median(failed):.2f}" if failed else "",
        ])  # fmt: skip
    yield f"overconfidence, {len(part['overconfidence'])} crowds"
    heads = ["", "mean", "worst", "worst tenth", "median", "marginals beyond .05 and .95", "crowds under 60 %"]
    yield markdown([*heads, "the spammer there"], lines)
    lines = []
    for right, wrong in PRIORS:
        some = [r for r in part["samples"] if r["task"].startswith(f"samples/{right:g}/")]
        if some:
            means = [100 * np.mean([r["sampled"][str(S)] for r in some]) for S in SAMPLES]
            exact = 100 * np.mean([r["exact"] for r in some])
            lines.append([f"Dir({right:g}, {wrong:g})", *(f"{m:.1f}" for m in means), f"{exact:.1f}", str(len(some))])
    yield "samples"
    yield markdown(["", *map(str, SAMPLES), "exact", "crowds"], lines)
    for r in part["spammers"]:
        most = ", ".join(f"{n} ({100 * a:.0f} %)" for n, a in zip(r["votes"][:6], r["accuracy"], strict=False))
        yield f"{r['task']}: {most}; median {np.median(r['votes']):g}"
    lines = []
    for strategy in BANDITS:
        some = [r for r in part["bandit"] if r["task"].startswith(f"bandit/{strategy}/")]
        if some:
            at = [np.mean([np.interp(v, r["votes"], r["regret"]) for r in some]) for v in (100, 300, 900)]
            right = 100 * np.mean([r["accuracy"][-1] for r in some])
            lines.append([f"`{strategy}`", *(f"{x:.1f}" for x in at), f"{right:.1f}", str(len(some))])
    yield "bandit"
    yield markdown(["", "100 votes", "300", "900", "labels right", "crowds"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(), help="the folder of data sets")
    parser.add_argument("--out", type=Path, required=True, help="a line for each task (.jsonl)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--only", default="", help="how the names of tasks begin, comma-separated")
    parser.add_argument("--show", action="store_true", help="run nothing: print the tables")
    given = parser.parse_args()
    if given.show:
        found = [json.loads(line) for line in given.out.read_text(encoding="utf-8").splitlines()]
        print("\n\n".join(tables(found)))
        return
    done = set()
    if given.out.is_file():
        done = {json.loads(line)["task"] for line in given.out.read_text(encoding="utf-8").splitlines()}
    deadline, begins = time.time() + 60.0 * given.minutes, tuple(given.only.split(","))
    left = [(name, args, deadline) for name, args in tasks(given.data) if name not in done and name.startswith(begins)]
    with get_context("spawn").Pool(given.jobs) as pool:
        for row in pool.imap_unordered(work, left):
            if row is not None:
                append(given.out, row)


if __name__ == "__main__":
    main()
