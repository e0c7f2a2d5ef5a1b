"""The default learner beside plain logistic regression and the constant, on cases that it was not made with.

    python benchmarks/learner_cases.py --out FILE.jsonl [--data FOLDER] [--only wide,noise] [--seeds 0,1,2]

Inputs are bundled with scikit-learn, drawn by its ``make_classification``, or texts of a data folder; votes are
simulated on the true classes. Every line of the file is a case with a seed: accuracy and log loss on test items of
``default``, of logistic regression (C = 1, on standardised features, or on TF-IDF of words and pairs of words) on the
``consensus`` (of ``auto``, corrected) and on the ``majority`` (ties shared), and of the ``constant``.
"""

from __future__ import annotations

import argparse
import csv
import json
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn import datasets
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import crowdwise as cw
from crowdwise.learners.learner import consensus
from crowdwise.learners.text_features import is_texts


def one_coin(K, accuracies):
    right = np.asarray(accuracies)[:, None, None]
    return np.eye(K) * right + (1.0 - np.eye(K)) * (1.0 - right) / (K - 1)


def dirichlet(K, M, rng, diagonal):
    return np.stack([[rng.dirichlet(1.0 + diagonal * (np.arange(K) == k)) for k in range(K)] for _ in range(M)])


def vote(y, theta, per_item, rng):
    """Items, annotators and labels: so many votes on each item, by annotators drawn at random."""
    M, K, rows = len(theta), theta.shape[1], []
    for n, k in enumerate(y):
        count = per_item if np.isscalar(per_item) else per_item[n]
        rows += [(n, m, rng.choice(K, p=theta[m, k])) for m in rng.choice(M, size=count, replace=False)]
    return np.array(rows)


def split(X, y, test, rng, n=None):
    rows = np.arange(len(y))
    a, b = train_test_split(rows, test_size=test, random_state=int(rng.integers(1_000_000)), stratify=y)
    return X[a[:n]], y[a[:n]], X[b], y[b]


def drawn(rng, n, features, informative, K, **more):
    return datasets.make_classification(
        n_samples=n, n_features=features, n_informative=informative, n_redundant=0, n_classes=K, flip_y=0.0,
        random_state=int(rng.integers(1_000_000)), **{"n_clusters_per_class": 1} | more,
    )  # fmt: skip


def texts(folder, name):
    def column(file, of):
        with (folder / name / file).open(encoding="utf-8", newline="") as lines:
            return {row["task"]: row[of] for row in csv.DictReader(lines)}

    text, label = column("texts.csv", "text"), column("truth.csv", "label")
    names = [task for task in text if task in label]
    return np.array([text[task] for task in names], dtype=object), np.unique(
        [label[task] for task in names], return_inverse=True
    )[1]


def bundled(load, test, accuracies, per_item):
    """A set of scikit-learn's with one-coin annotators, whose accuracies are drawn by a function of rng."""

    def case(rng, _):
        X, y = load(return_X_y=True)
        x, t, xt, yt = split(X, y, test, rng)
        return x, t, xt, yt, vote(t, one_coin(y.max() + 1, accuracies(rng)), per_item, rng)

    return case


def made(n, features, informative, K, accuracies, per_item, test=0.5, **more):
    """Drawn features with one-coin annotators."""

    def case(rng, _):
        x, t, xt, yt = split(*drawn(rng, n, features, informative, K, **more), test, rng)
        return x, t, xt, yt, vote(t, one_coin(K, accuracies(rng)), per_item, rng)

    return case


def spammers(rng, _):
    x, t, xt, yt = split(*datasets.load_wine(return_X_y=True), 0.4, rng)
    theta = one_coin(3, np.append(rng.uniform(0.7, 0.9, 4), [1 / 3] * 4))
    theta[4] = [[1.0, 0.0, 0.0]] * 3
    return x, t, xt, yt, vote(t, theta, 4, rng)


def many_classes(rng, _):
    x, t, xt, yt = split(*drawn(rng, 3000, 40, 20, 30, class_sep=2.0), 0.5, rng)
    return x, t, xt, yt, vote(t, dirichlet(30, 30, rng, 40.0), 3, rng)


def rules(rng, _):
    x, t, xt, yt = split(*drawn(rng, 2400, 15, 8, 3, n_clusters_per_class=2, class_sep=1.2), 0.5, rng)
    rows = []
    for m in range(12):
        fires = np.flatnonzero(rng.random(len(t)) < np.where(t == m // 4, 0.4, 0.06))
        rows += [(n, m, m // 4) for n in fires]
    return x, t, xt, yt, np.array(rows)


def rules_of_features(rng, _):
    x, t, xt, yt = split(*drawn(rng, 2400, 15, 8, 3, n_clusters_per_class=2, class_sep=1.2), 0.5, rng)
    rows = []
    for k in range(3):
        with_class = np.array([np.corrcoef(x[:, d], t == k)[0, 1] for d in range(15)])
        for rank, d in enumerate(np.argsort(-np.abs(with_class))[:4]):
            value = x[:, d] * np.sign(with_class[d])
            rows += [(n, 4 * k + rank, k) for n in np.flatnonzero(value > np.quantile(value, 0.8))]
    return x, t, xt, yt, np.array(rows)


def copiers(rng, _):
    x, t, xt, yt = split(*drawn(rng, 2000, 20, 8, 4), 0.5, rng)
    rows = vote(t, one_coin(4, rng.uniform(0.55, 0.8, 5)), 3, rng)
    copied = vote(t, one_coin(4, [0.5]), 1, rng)[:, 2]
    more = [(n, m, copied[n]) for m in (5, 6, 7) for n in np.flatnonzero(rng.random(len(t)) < 0.7)]
    return x, t, xt, yt, np.concatenate([rows, more])


def scales(rng, _):
    X, y = drawn(rng, 2000, 15, 8, 3)
    X = X * 10.0 ** rng.uniform(-4.0, 4.0, 15)
    X[:, ::3] = np.sign(X[:, ::3]) * np.expm1(2.0 * np.abs(X[:, ::3] / X[:, ::3].std(axis=0)))
    x, t, xt, yt = split(X, y, 0.5, rng)
    return x, t, xt, yt, vote(t, one_coin(3, rng.uniform(0.6, 0.85, 15)), 3, rng)


def missing(rng, _):
    x, t, xt, yt = split(*drawn(rng, 3000, 20, 8, 3), 0.5, rng)
    per_item = np.where(rng.random(len(t)) < 0.85, 0, 2)
    return x, t, xt, yt, vote(t, one_coin(3, rng.uniform(0.6, 0.85, 15)), per_item, rng)


def noise(rng, _):
    X, y = drawn(rng, 2000, 20, 8, 2, weights=[0.7])
    x, t, xt, yt = split(rng.normal(size=X.shape), y, 0.5, rng)
    return x, t, xt, yt, vote(t, one_coin(2, rng.uniform(0.6, 0.85, 15)), 3, rng)


def diabetes(rng, _):
    X, y = datasets.load_diabetes(return_X_y=True)
    x, t, xt, yt = split(X, (y > np.quantile(y, 0.75)).astype(int), 0.4, rng)
    return x, t, xt, yt, vote(t, one_coin(2, rng.uniform(0.65, 0.9, 8)), 3, rng)


def flippers(rng, _):
    x, t, xt, yt = split(*datasets.load_digits(return_X_y=True), 0.3, rng)
    theta = 0.6 * np.tile(np.eye(10), (5, 1, 1))
    for m in range(5):
        for k in range(10):
            theta[m, k, rng.choice(np.delete(np.arange(10), k))] = 0.4
    return x, t, xt, yt, vote(t, theta, 2, rng)


def counts(rng, _):
    words = rng.gamma(0.2, 1.0, size=(5, 800))
    words /= words.sum(axis=1, keepdims=True)
    y = rng.integers(5, size=1500)
    X = sp.csr_array(np.stack([rng.multinomial(30, 0.5 * words[k] + 0.5 / 800) for k in y]))
    x, t, xt, yt = split(X, y, 0.5, rng)
    return x, t, xt, yt, vote(t, one_coin(5, rng.uniform(0.5, 0.8, 12)), 2, rng)


def sparse_words(rng, folder):
    x, t, xt, yt = split(*texts(folder, "rules_trec"), 0.4, rng, 2500)
    words = TfidfVectorizer(min_df=2)
    rows = vote(t, dirichlet(6, 25, rng, 9.0), 3, rng)
    return words.fit_transform(x.tolist()), t, words.transform(xt.tolist()), yt, rows


def texts_single(rng, folder):
    x, t, xt, yt = split(*texts(folder, "rules_trec"), 0.4, rng, 1500)
    return x, t, xt, yt, vote(t, dirichlet(6, 15, rng, 12.0), 1, rng)


def texts_poor(rng, folder):
    x, t, xt, yt = split(*texts(folder, "rules_youtube"), 0.4, rng)
    return x, t, xt, yt, vote(t, one_coin(2, np.append(rng.uniform(0.6, 0.85, 6), [0.5] * 4)), 2, rng)


def between(low, high, M):
    return lambda rng: rng.uniform(low, high, M)


CASES = {
    "breast_cancer, single votes": bundled(datasets.load_breast_cancer, 0.3, between(0.65, 0.9, 10), 1),
    "breast_cancer, votes nearly all right": bundled(datasets.load_breast_cancer, 0.3, between(0.97, 0.99, 5), 3),
    "wine, half of the annotators spam": spammers,
    "iris, one annotator": bundled(datasets.load_iris, 0.4, lambda rng: [0.8], 1),
    "iris, 60 items": bundled(datasets.load_iris, 0.6, between(0.6, 0.9, 6), 2),
    "digits, pairs of classes flipped": flippers,
    "a class of 5 %": made(4000, 20, 6, 2, between(0.75, 0.95, 20), 3, weights=[0.95]),
    "a class of 5 %, single votes": made(4000, 20, 6, 2, between(0.85, 0.97, 20), 1, weights=[0.95]),
    "rare classes, one annotator": made(1500, 20, 6, 3, lambda rng: [0.85], 1, weights=[0.85, 0.1]),
    "30 classes": many_classes,
    "rules that abstain": rules,
    "rules on the features": rules_of_features,
    "copiers": copiers,
    "60 items, 30 features": made(1060, 30, 5, 2, between(0.6, 0.9, 8), 3, test=1000),
    "300 items, 5,000 features": made(1300, 5000, 30, 2, between(0.6, 0.9, 12), 3, test=1000, class_sep=2.0),
    "features of all scales": scales,
    "votes on 15 % of the items": missing,
    "weak signal": made(3000, 20, 3, 2, between(0.6, 0.8, 20), 2, class_sep=0.5),
    "noise as features": noise,
    "sparse counts": counts,
    "diabetes, its upper quarter": diabetes,
    "rules_trec, sparse words": sparse_words,
    "rules_trec, texts, single votes": texts_single,
    "rules_youtube, texts, poor votes": texts_poor,
}


def regression(x, q, xt):
    if is_texts(x):
        words = TfidfVectorizer(min_df=2, ngram_range=(1, 2), sublinear_tf=True)
        x, xt = words.fit_transform(x.tolist()), words.transform(xt.tolist())
    elif not sp.issparse(x):
        scale = StandardScaler().fit(x)
        x, xt = scale.transform(x), scale.transform(xt)
    row, label = np.nonzero(q > 1e-6)
    model = LogisticRegression(max_iter=3000).fit(x[row], label, sample_weight=q[row, label])
    p = np.full((xt.shape[0], q.shape[1]), 1e-9)
    p[:, model.classes_] = model.predict_proba(xt)
    return p / p.sum(axis=1, keepdims=True)


def measured(case, folder, seed):
    rng = np.random.default_rng([seed, 11])
    x, t, xt, yt, rows = CASES[case](rng, folder)
    K = int(max(t.max(), yt.max())) + 1
    votes = cw.Votes.from_codes(
        *rows.T.astype(int), items=np.arange(len(t)), annotators=np.arange(rows[:, 1].max() + 1), classes=np.arange(K)
    )
    learner = cw.CrowdClassifier(random_state=seed, device="cpu")
    plain = [list(part) if is_texts(part) else part for part in (x, xt)]
    learner.fit(plain[0], votes, items=votes.items)
    used, shares = np.diff(votes.indptr) > 0, votes.shares()
    majority = (shares == shares.max(axis=1, keepdims=True)) * used[:, None].astype(float)
    majority /= np.maximum(majority.sum(axis=1, keepdims=True), 1.0)
    predictions = {
        "default": learner.predict_proba(plain[1]),
        "consensus": regression(x, consensus(votes, None) * used[:, None], xt),
        "majority": regression(x, majority, xt),
        "constant": np.tile(majority.sum(axis=0) / majority.sum(), (len(yt), 1)),
    }
    figures = {
        name: [round(float((p.argmax(axis=1) == yt).mean()), 4),
               round(float(-np.log(np.maximum(p[np.arange(len(yt)), yt], 1e-9)).mean()), 4)]
        for name, p in predictions.items()
    }  # fmt: skip
    return {"case": case, "seed": seed, **figures, "weights": learner.weights_}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="the folder of rules_trec and rules_youtube")
    parser.add_argument("--only", help="parts of the names of cases, with commas between")
    parser.add_argument("--seeds", default="0,1,2")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    figures = defaultdict(list)
    with options.out.open("a", encoding="utf-8") as out:
        for case in CASES:
            if options.only and not any(part in case for part in options.only.split(",")):
                continue
            if case.startswith("rules_") and options.data is None:
                continue
            for seed in map(int, options.seeds.split(",")):
                row = measured(case, options.data, seed)
                out.write(json.dumps(row) + "\n")
                out.flush()
                figures[case].append([row[name] for name in ("default", "consensus", "majority", "constant")])
            mean = np.mean(figures[case], axis=0)
            cells = [f"{100 * right:.1f}, {loss:.3f}" for right, loss in mean]
            print(f"| {case} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
