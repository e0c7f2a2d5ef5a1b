"""The tutorial's figures on adversaries, groups and fairness, and fair assignment: parts of results/trust.json.

Called by trust_tables.py. Sets that cannot be had without a network (shuttle, covertype, the data of the fairness
table) are made here in their likeness: as many classes, with shares like theirs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
from trust_rings import crowd as real_crowd

import crowdwise as cw
from crowdwise.active.fair_assignment import propose_fairly
from crowdwise.active.state import State
from crowdwise.active.strategies import find_strategy
from crowdwise.bench.runs import data_folder
from crowdwise.learners.alternating_em import Raykar
from crowdwise.simulate.crowds import dirichlet_confusion
from crowdwise.trust import find_colluders
from crowdwise.trust.annotators import assess_annotators
from crowdwise.trust.fair_thresholds import choose_thresholds
from crowdwise.trust.fairness import assess_fairness

ATTACKED = {"bluebird": "bluebird", "sentence polarity": "sentiment_polarity", "dog": "dog", "web": "web"}
SHARES = (0.1, 0.2, 0.3, 0.4)


def _score(truth: Any, table: cw.Votes, method: str) -> float:
    rows = np.flatnonzero(truth >= 0)
    return float((cw.aggregate(table, method).label_codes[rows] == truth[rows]).mean())


def attacked(seeds: int = 2) -> list[dict[str, Any]]:
    """Colluders among the annotators of four real sets, p_corr = 0.9: both algorithms, and M-MSR."""
    out = []
    for name, key in ATTACKED.items():
        votes = real_crowd(key, str(data_folder()))
        score = partial(_score, votes.truth)
        for share in SHARES:
            sums: dict[str, list[float]] = {}
            for seed in range(seeds):
                rng, N, K, M = (
                    np.random.default_rng([seed, int(10 * share)]),
                    len(votes),
                    votes.n_classes,
                    votes.n_annotators,
                )
                ring = np.isin(np.arange(M), rng.choice(M, round(share * M), replace=False))
                truth = np.where(votes.truth >= 0, votes.truth, votes.shares().argmax(axis=1))
                script = np.where(rng.random(N) < 0.9, (truth + rng.integers(1, K, N)) % K, truth)
                label = np.where(ring[votes.annotator], script[votes.item], votes.label).astype(votes.label.dtype)
                table = replace(votes, label=label)
                busy = np.bincount(votes.annotator[~ring[votes.annotator]], minlength=M).argmax()
                got = {"majority": score(table, "majority"), "dawid-skene": score(table, "dawid-skene")}
                got["m-msr"], got["auto"] = score(table, "m-msr"), score(table, "auto")
                for rule, options in (("H", {}), ("TA", {"trusted": votes.annotators[busy]})):
                    found = find_colluders(table, **options).flagged
                    left = table.select(~found[table.annotator]) if found.any() else table
                    got[f"{rule} found"] = float(found[ring].mean())
                    got[f"{rule} accused"] = float(found[~ring].mean())
                    got[rule] = score(left, "dawid-skene")
                got["honest"] = score(table.select(~ring[table.annotator]), "dawid-skene")
                for column, value in got.items():
                    sums.setdefault(column, []).append(value)
            out.append({"set": name, "share": share, **{c: round(float(np.mean(v)), 4) for c, v in sums.items()}})
    return out


def effect(shares: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8), seeds: int = 3) -> list[dict[str, Any]]:
    """N = 10,000, K = 4, M = 20, a share of them spammers (habits) or malicious (any other class): labels right."""
    N, K, M, out = 10_000, 4, 20, []
    for kind in ("spammers", "malicious"):
        for share in shares:
            sums: dict[str, list[float]] = {}
            for seed in range(seeds):
                rng = np.random.default_rng([seed, int(10 * share)])
                theta = dirichlet_confusion(M, K, 5.0, 1.0, rng)
                bad = round(share * M)
                flipped = (1.0 - np.eye(K)) * 0.85 / (K - 1) + 0.15 * np.eye(K)
                theta[:bad] = flipped if kind == "malicious" else rng.dirichlet(np.ones(K), size=(bad, 1))
                y = rng.integers(0, K, N)
                said = (rng.random((N, M, 1)) > theta[np.arange(M), y[:, None]].cumsum(axis=2)).sum(axis=2)
                said = said.clip(0, K - 1)
                votes = replace(cw.Votes.from_dense(said, classes=range(K)), truth=y)
                log = np.log(theta.clip(1e-12))
                oracle = sum(log[m][:, said[:, m]] for m in range(M)).argmax(axis=0)
                got = {"oracle": float((oracle == y).mean())}
                got |= {key: _score(y, votes, key) for key in ("majority", "dawid-skene", "auto")}
                for name, value in got.items():
                    sums.setdefault(name, []).append(value)
            out.append({"kind": kind, "share": share, **{k: round(float(np.mean(v)), 4) for k, v in sums.items()}})
    return out


def ensembles(seeds: int = 1) -> list[dict[str, Any]]:
    """15 classifiers in groups, seven classes: three groups on an easy set, four on a hard one."""
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.tree import DecisionTreeClassifier

    kinds = (
        lambda s: DecisionTreeClassifier(max_depth=12, max_features=4, random_state=s),
        lambda s: GaussianNB(),
        lambda s: KNeighborsClassifier(1 + 2 * (s % 3)),
        lambda s: LogisticRegression(max_iter=200, C=0.1),
    )
    likeness = {
        "shuttle": (3, 6000, [0.786, 0.001, 0.003, 0.154, 0.055, 0.0005, 0.0005], 9, 3.5, 0.0),
        "covertype": (4, 6000, [0.365, 0.488, 0.062, 0.005, 0.016, 0.030, 0.034], 12, 1.0, 0.1),
    }
    out = []
    for name, (J, N, weights, features, apart, flips) in likeness.items():
        table = []
        for seed in range(seeds):
            x, y = make_classification(
                N + 2000, features, n_informative=features - 2, n_redundant=0, n_classes=7, n_clusters_per_class=1,
                weights=weights, class_sep=apart, flip_y=flips, random_state=seed,
            )  # fmt: skip
            rng, said = np.random.default_rng(seed), []
            for j in range(J):  # a group learns from one sample and one set of features
                rows, some = rng.choice(2000, 300, replace=False), rng.permutation(features)[: max(features // 2, 3)]
                for m in range(j, 15, J):
                    own = rng.choice(rows, 250)
                    said.append(kinds[j](m).fit(x[own][:, some], y[own]).predict(x[2000:][:, some]))
            votes = cw.Votes.from_dense(np.array(said).T, classes=range(7))
            keys = [("majority", {}), ("dawid-skene", {}), ("grouped-majority", {"groups": J})]
            keys += [("grouped-dawid-skene", {"groups": J}), ("auto", {})]
            table.append([float((cw.aggregate(votes, k, **o).labels == y[2000:]).mean()) for k, o in keys])
        out.append({"set": name, "groups": J, "items": N, "accuracy": np.round(np.mean(table, axis=0), 4).tolist()})
    return out


def _trained(model: Any, x: Any, labels: Any, y: Any, z: Any) -> tuple[float, float]:
    """Accuracy of a classifier on items beyond those with labels, and its gap of demographic parity."""
    N = len(labels)
    d = model.fit(x[:N], labels).predict(x[N:])
    return float((d == y[N:]).mean()), abs(float(d[z[N:] == 1].mean() - d[z[N:] == 0].mean()))


def _gaps(said: Any, y: Any, z: Any) -> list[float]:
    """Group 1 less group 0: accuracy, false positive rate, share of positive labels."""
    of = (said == y, np.where(y == 0, said, np.nan), said)
    return [float(np.nanmean(np.asarray(x, float)[z == 1]) - np.nanmean(np.asarray(x, float)[z == 0])) for x in of]


def unfair(seeds: int = 3, N: int = 3000) -> list[dict[str, Any]]:
    """Classifiers on labels of a biased crowd less those on clean labels: accuracy, and demographic parity; and the
    three gaps between the groups of the truth, of the labels, and of each annotator."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    classifiers = {
        "Random Forest": lambda s: RandomForestClassifier(100, random_state=s, n_jobs=1),
        "Logistic Regression": lambda s: LogisticRegression(max_iter=300),
    }
    sums: dict[tuple[str, str], list[Any]] = {}
    gaps: list[dict[str, Any]] = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        z = (rng.random(2 * N) < 0.4).astype(int)
        x = rng.normal(size=(2 * N, 10))
        x[:, 0] += 0.5 * z
        y = (x[:, :4] @ [1.0, 0.8, -0.6, 0.5] + rng.logistic(size=2 * N) * 0.6 > 0.6).astype(int)
        given = np.column_stack([x, z])
        right = rng.uniform(0.6, 0.9, (20, 1)) - np.where((z == 1) & (y == 0), rng.uniform(0.0, 0.3, (20, 1)), 0.0)
        said = np.where(rng.random((20, 2 * N)) < right, y, 1 - y).T
        who = rng.random((N, 20)).argsort(axis=1)[:, :5]
        item = np.repeat(np.arange(N), 5)
        votes = cw.Votes.from_codes(
            item, who.ravel(), said[item, who.ravel()], items=range(N), annotators=range(20), classes=[0, 1]
        )
        soft = Raykar(random_state=seed).fit(given[:N], votes)
        labels = {
            "majority": cw.aggregate(votes, "majority").label_codes,
            "dawid-skene": cw.aggregate(votes, "dawid-skene").label_codes,
            "learning from crowds": soft.consensus_.label_codes,
            "group-conditional": cw.GroupConditional(groups=z[:N]).fit(votes).consensus_.label_codes,
        }
        everybody = np.array([_gaps(said[:N, m], y[:N], z[:N]) for m in range(20)])
        gaps.append({
            "truth": _gaps(y[:N], y[:N], z[:N]), **{key: _gaps(x, y[:N], z[:N]) for key, x in labels.items()},
            "annotators, the least": everybody.min(axis=0), "annotators, the median": np.median(everybody, axis=0),
            "annotators, the most": everybody.max(axis=0),
        })  # fmt: skip
        for name, make in classifiers.items():
            accuracy, parity = _trained(make(seed), given, y[:N], y, z)
            for key, target in labels.items():
                a, p = _trained(make(seed), given, target, y, z)
                sums.setdefault((name, key), []).append([100 * (accuracy - a), p - parity])
    table: list[dict[str, Any]] = [
        {"classifier": c, "labels": key, "accuracy": float(m[0]), "parity": float(m[1])}
        for (c, key), rows in sums.items() for m in [np.round(np.mean(rows, axis=0), 4)]
    ]  # fmt: skip
    of = {key: np.mean([one[key] for one in gaps], axis=0) for key in gaps[0]}
    return table + [{"of": key, "gaps": np.round(three, 4).tolist()} for key, three in of.items()]


def drift(seeds: int = 10) -> list[dict[str, Any]]:
    """Five of 25 annotators whose accuracy falls: at once, half way, or all the time; 80 and 200 votes each."""
    out = []
    for votes_each in (80, 200):
        for fall in (0.0, 0.15, 0.3):
            for way in ("a step", "a slope") if fall else ("none",):
                found, false = [], []
                for seed in range(seeds):
                    rng, M = np.random.default_rng([seed, votes_each]), 25
                    N = 5 * votes_each
                    y, item = rng.integers(0, 2, N), np.repeat(np.arange(N), 5)
                    who = rng.random((N, M)).argsort(axis=1)[:, :5].ravel()
                    when = item / N
                    part = (when > 0.5) if way == "a step" else when
                    p = rng.uniform(0.75, 0.9, M)[who] - fall * part * (who < 5)
                    said = np.where(rng.random(len(item)) < p, y[item], 1 - y[item])
                    votes = cw.Votes.from_codes(item, who, said, items=range(N), annotators=range(M), classes=[0, 1])
                    votes = replace(votes, timestamp=1e6 * votes.item / N)
                    report = assess_annotators(votes, cw.aggregate(votes, "auto"))
                    flagged = np.array([any(f.kind.value == "drift" for f in flags) for flags in report.flags])
                    found.append(flagged[:5].mean())
                    false.append(flagged[5:].mean())
                row = {"votes": votes_each, "fall": fall, "way": way, "found": float(np.mean(found))}
                out.append(row | {"others": round(float(np.mean(false)), 4)})
    return out


# -------------------------------------------------------------------- fair assignment, blind gaps, re-weighting


def planted(case: int, seed: int, N: int = 600, M: int = 24) -> tuple[Any, Any, Any]:
    """Groups, truths, and what everybody would say. 1: half of the annotators guess on B and are best on A. 2: two
    thirds guess on B."""
    rng = np.random.default_rng(seed)
    z, y, place = np.arange(N) % 2, rng.integers(0, 2, N), np.arange(M)
    if case == 1:
        a = np.where(place % 2, rng.uniform(0.85, 0.95, M), rng.uniform(0.7, 0.8, M))
        b = np.where(place % 2, rng.uniform(0.5, 0.6, M), a)
    else:
        a = rng.uniform(0.75, 0.9, M)
        b = np.where(place % 3, rng.uniform(0.5, 0.6, M), a)
    return z, y, np.where(rng.random((N, M)) < np.stack([a, b])[z], y[:, None], 1 - y[:, None])


HOWS = ("plain", "one matrix", "by group")


def campaign(case: int, how: Any, seed: int, first: int = 3, batches: int = 9, size: int = 200) -> list[float]:
    """Three votes per item at random, then batches by a strategy; accuracy by group of both final fits.

    ``how`` is one of ``HOWS``, or a tolerance with matrices by group.
    """
    warnings.simplefilter("ignore")
    z, y, said = planted(case, seed)
    N, M = said.shape
    names, rule = np.array(["A", "B"])[z], replace(find_strategy("value"), spread=2.0)
    online = rule.stream(cw.DawidSkene(), [0, 1])
    online.declare(range(N), range(M))
    rng = np.random.default_rng(seed + 100)

    def vote(item: Any, who: Any) -> None:
        online.partial_fit(
            cw.Votes.from_codes(item, who, said[item, who], items=range(N), annotators=range(M), classes=[0, 1])
        )

    vote(np.repeat(np.arange(N), first), rng.random((N, M)).argsort(axis=1)[:, :first].ravel())
    for _ in range(batches):
        state = State.of(online, group=None if how in HOWS[:2] else names, posterior=online.e_step()[0])
        if how == "plain":
            asked = rule.propose(state, size, rng)
        else:  # before: one matrix, and whatever it costs
            options = {} if how == "by group" else {"tolerance": 0.9 if how == "one matrix" else how}
            state, draw = state.replace(group=names), int(rng.integers(2**31))
            asked = propose_fairly(state, size, 0.01, rule, random_state=draw, **options).proposal
        vote(asked.item, asked.annotator)
    votes, out = online.votes(), list[float]()
    for model in (cw.DawidSkene(), cw.GroupConditional(groups=dict(enumerate(names.tolist())))):
        right = model.fit(votes).consensus_.label_codes == y[votes.items.astype(int)]
        out += [float(right[z[votes.items.astype(int)] == g].mean()) for g in (0, 1)]
    return out


def assignment(seeds: range = range(16), jobs: int = 1, hows: tuple[Any, ...] = HOWS) -> list[dict[str, Any]]:
    """Accuracy of both groups after 6 votes per item on average, by how the last 3 were asked for."""
    cells = [(case, how) for case in (1, 2) for how in hows]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:  # a fork of polars' threads can hang
        runs = pool.map(campaign, *zip(*((*cell, seed) for cell in cells for seed in seeds), strict=True))
        tables = np.array(list(runs)).reshape(len(cells), len(seeds), 4)
    return [
        {"case": case, "how": how, "seeds": len(seeds), "accuracy": np.round(table.mean(axis=0), 4).tolist()}
        for (case, how), table in zip(cells, tables, strict=True)
    ]


def biased(seed: int, misled: float, N: int = 600) -> tuple[cw.Votes, Any, Any]:
    """Five votes per item; negatives of group 1 are called positive 20 points more often, and a share of the group's
    items looks to everybody like the other class."""
    rng, M = np.random.default_rng(seed), 20
    z = rng.integers(0, 2, N)
    looks = (rng.random(N) < 0.4).astype(int)
    truth = np.where((rng.random(N) < misled) & (z == 1), 1 - looks, looks)
    item, who = np.repeat(np.arange(N), 5), rng.random((N, M)).argsort(axis=1)[:, :5].ravel()
    p = rng.beta(16, 4, M)[who] - 0.2 * ((z == 1) & (looks == 0))[item]
    said = np.where(rng.random(len(item)) < p, looks[item], 1 - looks[item])
    return cw.Votes.from_codes(item, who, said, items=range(N), annotators=range(M), classes=[0, 1]), z, truth


def blind(seeds: int = 40) -> list[dict[str, Any]]:
    """Gaps of equalised odds: the true one on 20,000 items, and estimates on 600 with and without truth."""
    out = []
    for misled in (0.0, 0.1, 0.2):
        rows = []
        for seed in range(seeds):
            votes, z, truth = biased(seed, misled)
            d = (c := cw.aggregate(votes, "dawid-skene")).label_codes
            known = np.where(np.random.default_rng(seed).random(len(z)) < 1 / 3, truth, -1)
            gap = max(abs(np.subtract(*(d[(z == g) & (truth == t)].mean() for g in (0, 1)))) for t in (0, 1))
            row = [gap]
            for options in ({}, {"hidden": 0.0}, {"truth": known}):
                e = assess_fairness(votes, c, z, resamples=200, random_state=seed, **options).gaps["equalised odds"]
                row += [e.value, e.high - e.low, e.low - 1e-9 <= gap <= e.high + 1e-9]
            rows.append(row)
        mean = np.mean(np.array(rows, dtype=float), axis=0)
        names = [f"{kind} {what}" for kind in ("blind", "naive", "gold") for what in ("gap", "width", "covered")]
        out.append(
            {
                "misled": misled,
                "true": round(float(mean[0]), 4),
                **dict(zip(names, np.round(mean[1:], 4).tolist(), strict=True)),
            }
        )
    return out


def corrections(seeds: int = 20) -> dict[str, Any]:
    """Thresholds by group on simulated items, chosen on a third with truth and judged on the rest; the votes of
    groups of annotators made to count alike on real comments."""
    rows = []
    for seed in range(seeds):
        votes, z, truth = biased(seed, 0.05, 1500)
        rest = np.random.default_rng(seed).random(len(z)) >= 1 / 3
        for key, labels in _labelled(votes, z, np.where(rest, -1, truth)):
            rate = [[labels[rest & (z == g) & (truth == t)].mean() for g in (0, 1)] for t in (0, 1)]
            rows.append((key, float((labels == truth)[rest].mean()), max(abs(a - b) for a, b in rate)))
    kinds = list(dict.fromkeys(r[0] for r in rows))
    table = [{"labels": k, **_means([r[1:] for r in rows if r[0] == k], ("accuracy", "gap"))} for k in kinds]
    return {"simulated": table, "toxicity": list(_reweighted())}


def _means(rows: list[Any], names: tuple[str, ...]) -> dict[str, float]:
    return dict(zip(names, np.round(np.mean(rows, axis=0), 4).tolist(), strict=True))


def _labelled(votes: cw.Votes, z: Any, gold: Any) -> Iterator[tuple[str, Any]]:
    for key, options in (("dawid-skene", {}), ("group-conditional", {"groups": z})):
        c = cw.aggregate(votes, key, **options)
        yield key, c.label_codes
        for by, known in (("posterior", None), ("gold", gold)):
            chosen = choose_thresholds(c, z, constraint="equalised odds", gap=0.05, gold=known)
            yield f"{key}, thresholds by {by}", chosen.labels.astype(int)


def _reweighted() -> Iterator[dict[str, Any]]:
    """120 comments, 545 people: labels where groups of annotators count alike, and those of each group alone."""
    found = cw.read_dataset(data_folder() / "toxicity_demographics", on_duplicate="all")
    votes, people = found.votes, found.annotator_table.to_dict(as_series=False)
    for attribute, two in (("gender", ("Female", "Male")), ("politic", ("Democrat", "Republican"))):
        of = dict(zip(people["worker"], people[attribute], strict=True))
        code = np.array([two.index(of[str(a)]) if of.get(str(a)) in two else -1 for a in votes.annotators.tolist()])
        some = votes.select(code[votes.annotator] >= 0)
        group = code[some.annotator]
        size = np.stack([np.bincount(some.item[group == g], minlength=len(some)) for g in (0, 1)])
        alike = replace(some, weight=1.0 / np.maximum(size[group, some.item], 1))
        own = [some.select(group == g).shares()[:, 1] for g in (0, 1)]
        row: dict[str, Any] = {"attribute": attribute, "groups": list(two), "votes": size.sum(axis=1).tolist()}
        for name, table in (("as they are", some), ("alike", alike)):
            share = table.shares()[:, 1]
            row[name] = [round(float(np.abs(share - x).mean()), 4) for x in own]
            row[f"{name} labels"] = [round(float(((share > 0.5) == (x > 0.5)).mean()), 4) for x in own]
        yield row


PARTS = {
    "effect": effect,
    "attacked": attacked,
    "ensembles": ensembles,
    "unfair": unfair,
    "drift": drift,
    "assignment": assignment,
    "blind": blind,
    "corrections": corrections,
}
