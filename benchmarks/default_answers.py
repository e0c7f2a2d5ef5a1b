"""The default of every answer type other than votes against its trivial baseline, on every real set there is.

    python benchmarks/default_answers.py DATA [--only ordinal tags ...]

DATA is the folder of data sets. Writes ``benchmarks/results/default_answers.json`` and
``docs/benchmarks/default-answers.md``; with ``--only`` other types keep their figures. ``section(data)`` is the page
without its title. Where a set has no truth, the answers are split by item: half of them are aggregated and judged by
the others; of sets with people and LLMs the LLMs are aggregated, and people judge. The error of a difference is the
deviation over ``RESAMPLES`` resamples of the items (documents, for tags and label sets).
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import kendalltau
from tables import markdown

import crowdwise as cw
from crowdwise.core.span_overlap import HALF, matches, shared_characters
from crowdwise.core.text_distance import chrf, edit_distance
from crowdwise.data.texts import Tokens
from crowdwise.metrics import adjusted_rand

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/default_answers.json"
PAGE = ROOT / "docs/benchmarks/default-answers.md"
RESAMPLES = 100
QUICK = False
"""The default and its baseline alone, on a part of the longest sets: for a test."""
ALTTEST = ("cebab_stars", "10k_prompts", "summeval")
HEADLINES = 100  # of n_emotion: task = 100 * emotion + headline


# -------------------------------------------------------------------- reading


def read(data, name, keep=None, who=None):
    """task, worker, label: one per task and worker, the last."""
    t = pl.read_csv(data / name / "labels.csv", infer_schema_length=None).select("task", "worker", "label")
    if who is not None:
        t = t.filter(pl.col("worker").cast(pl.String).str.starts_with(who))
    if keep is not None:
        t = t.filter(pl.col("label").is_in(keep))
    return t.unique(["task", "worker"], keep="last", maintain_order=True)


def truth(data, name):
    return pl.read_csv(data / name / "truth.csv").select("task", "label")


def halves(t, seed=0):
    """Half of the answers on each item, and the others."""
    u = pl.Series(np.random.default_rng(seed).random(t.height))
    first = t.with_columns(u=u).select(pl.col("u").rank().over("task") <= (pl.len().over("task") / 2).ceil())
    mask = first.to_series()
    return t.filter(mask), t.filter(~mask)


def graded(data):
    """Sets whose answers are ordered: name, answers, what judges them."""
    for name in ("s_rel", "s_adult", "web"):
        yield name, read(data, name), truth(data, name)
    for name in ("weather_amt", "weather_cf"):  # negative < neutral < positive; the other two classes have no place
        known = truth(data, name).filter(pl.col("label") < 3)
        yield name, read(data, name, [0, 1, 2]).join(known.select("task"), on="task"), known
    yield "adult3, halves", *halves(read(data, "adult3", ["G", "P", "R", "X"]))
    for name in ("popquorn_offensiveness", "anesthesia"):
        yield f"{name}, halves", *halves(read(data, name))
    yield from people_and_llms(data)


def people_and_llms(data):
    for name in ALTTEST:
        both = [
            read(data, f"alttest_{name}", None, who).with_columns(pl.col("label").cast(pl.Int64, strict=False))
            for who in ("human", "llm")
        ]
        people, llms = (t.drop_nulls() for t in both)
        yield f"{name}, people, halves", *halves(people)
        yield f"{name}, LLMs by people", llms, people


def beside(*methods):
    """Other methods, where they are measured."""
    return () if QUICK else methods


# -------------------------------------------------------------------- one function per answer type
# Each yields (set, units, figures): figures(rows) are {figure: {method: value}} on such units, larger is better.


def ordinal(data):
    for name, t, judge in graded(data):
        votes = cw.Votes.from_frame(t)
        K, place = votes.n_classes, {c: k for k, c in enumerate(votes.classes.tolist())}
        at = {item: n for n, item in enumerate(votes.items.tolist())}
        judge = judge.filter(pl.col("task").is_in(list(at)), pl.col("label").is_in(list(place)))
        n = np.array([at[x] for x in judge["task"]])
        y = np.array([place[x] for x in judge["label"]])
        shares = np.zeros((len(votes), K))
        np.add.at(shares, (votes.item, votes.label), 1.0)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
        found = {"majority": top(shares), "median": median(shares)}
        for key in (*DEFAULTS["ordinal"], *beside("auto", "ordinal-raykar")):
            found[key] = np.eye(K)[cw.aggregate(votes, key).label_codes]
        far = np.abs(np.subtract.outer(np.arange(K), np.arange(K)))
        right = {m: q[n, y] for m, q in found.items()}
        near = {m: -(q @ far)[n, y] for m, q in found.items()}
        yield name, len(y), means({"accuracy": right, "- MAE": near})


def top(q):
    """The most probable classes, equal ones sharing the label."""
    best = q >= q.max(axis=1, keepdims=True) - 1e-9
    return best / best.sum(axis=1, keepdims=True)


def median(q):
    """The middle grade; half each of two where exactly half of the votes lie on either side."""
    below, K = q.cumsum(axis=1), q.shape[1]
    low, high = (below < 0.5 - 1e-9).sum(axis=1), (below < 0.5 + 1e-9).sum(axis=1).clip(max=K - 1)
    return (np.eye(K)[low] + np.eye(K)[high]) / 2.0


def means(figures):
    return lambda rows: {f: {m: float(x[rows].mean()) for m, x in by.items()} for f, by in figures.items()}


def rated(data):
    for name in ("n_emotion", "snow_anger", "snow_disgust", "snow_fear", "snow_wordsim"):
        t, known = read(data, name), truth(data, name)
        if name == "snow_wordsim":  # the truth is on a scale from 0 to 4
            known = known.with_columns(pl.col("label") * 2.5)
        yield name, t, known
    for name in ("web", "s_adult"):
        yield f"{name}, grades as numbers", read(data, name), truth(data, name)
    yield "popquorn_offensiveness, halves", *halves(read(data, "popquorn_offensiveness"))
    yield from people_and_llms(data)


def ratings(data):
    for name, t, judge in rated(data):
        table = cw.Ratings.from_frame(t.with_columns(pl.col("label").cast(pl.Float64)))
        at = {item: n for n, item in enumerate(table.items.tolist())}
        judge = judge.filter(pl.col("task").is_in(list(at))).group_by("task", maintain_order=True).agg(pl.mean("label"))
        n, y = np.array([at[x] for x in judge["task"]]), judge["label"].to_numpy()
        other = beside("bayes-iterative", "covariance", "pm-numeric", "catd-numeric")
        keys = ("mean", "median", *DEFAULTS["ratings"], *other)
        square = {key: (cw.aggregate(table, key).values[n] - y) ** 2 for key in keys}

        def figures(rows, square=square):
            base = square["mean"][rows].mean()
            return {"- RMSE / mean's": {m: -float(np.sqrt(x[rows].mean() / base)) for m, x in square.items()}}

        yield name, len(y), figures


def ranked(data):
    """Rankings made of ratings, equal ones in random order: of all that an annotator rated, or of one text."""
    for name in ("snow_anger", "snow_disgust", "snow_fear", "snow_wordsim"):
        yield name, read(data, name), truth(data, name)
    yield "popquorn_offensiveness, halves", *halves(read(data, "popquorn_offensiveness"))
    t = (
        read(data, "alttest_summeval")
        .with_columns(pl.col("label").cast(pl.Int64), part=pl.col("task").str.split("__"))
        .with_columns(text=pl.col("part").list.get(0), task=pl.col("part").list.get(1), of=pl.col("part").list.get(2))
    )
    some = sorted(t["text"].unique().to_list())[:20]
    for of in sorted(t["of"].unique().to_list()):
        one = t.filter(pl.col("of") == of)
        people = one.filter(pl.col("worker").str.starts_with("human"))
        llms = one.filter(pl.col("worker").str.starts_with("llm"), pl.col("text").is_in(some))
        yield f"summeval, {of}, LLMs by people", llms, people


def rankings(data):
    rng = np.random.default_rng(0)
    for name, t, judge in ranked(data):
        mixed = t.with_columns(u=pl.Series(rng.random(t.height))).sort("label", "u", descending=True)
        by = ["worker", "text"] if "text" in t.columns else ["worker"]
        records = [
            (str(key[0]), str(key[-1]), g["task"].cast(pl.String).to_list())
            for key, g in mixed.group_by(by, maintain_order=True)
            if g.height > 1
        ]
        table = cw.Rankings.from_records(records)
        known = dict(judge.group_by(pl.col("task").cast(pl.String)).agg(pl.mean("label")).iter_rows())
        n = np.array([i for i, x in enumerate(table.items.tolist()) if x in known])
        y = np.array([known[x] for x in table.items[n].tolist()])
        found = {"borda": borda(table)[n]}
        found |= {key: cw.aggregate(table, key).scores[n] for key in DEFAULTS["rankings"]}
        for ends in beside("top"):
            found[f"plackett-luce, ends='{ends}'"] = cw.aggregate(table, "plackett-luce", ends=ends).scores[n]
        yield name, len(y), tau(found, y)


def borda(table):
    """The mean place of an item in its rankings, from 0 (last) to 1 (first)."""
    size = np.diff(table.indptr)
    place = np.arange(len(table.item)) - np.repeat(table.indptr[:-1], size)
    value = 1.0 - place / (np.repeat(size, size) - 1.0)
    return np.bincount(table.item, value, table.n_items) / np.maximum(
        np.bincount(table.item, minlength=table.n_items), 1
    )


def tau(found, y):
    return lambda rows: {"Kendall's tau": {m: float(kendalltau(x[rows], y[rows]).statistic) for m, x in found.items()}}


def comparisons(data):
    """Half of the pairs are learned from, votes on the others judge; of MT-bench, the votes of GPT-4 or of people."""
    frame = read(data, "convarg_pairs").with_columns(part=pl.col("task").str.split("_")).with_columns(
        left=pl.col("part").list.first(), right=pl.col("part").list.last(),
        label=pl.col("label").replace_strict({"a1": "left", "a2": "right", "equal": "tie"}),
    )  # fmt: skip
    pairs = frame["task"].unique().sort().sample(fraction=0.5, seed=0)
    held = pl.col("task").is_in(pairs.implode())
    yield compared("convarg_pairs, held-out pairs", frame.filter(~held), frame.filter(held))
    t = pl.read_csv(data / "mtbench_judgments/labels.csv").with_columns(
        left=pl.col("model_a"), right=pl.col("model_b"),
        label=pl.col("label").replace_strict(
            {"model_a": "left", "model_b": "right"}, default="tie"
        ),
    )  # fmt: skip
    judge = pl.col("worker").str.contains("(?i)gpt")
    yield compared("mtbench_judgments, GPT-4 by people", t.filter(judge), t.filter(~judge))
    odd = pl.col("question_id") % 2 == 1
    yield compared("mtbench_judgments, people, halves", t.filter(~judge, odd), t.filter(~judge, ~odd))


def compared(name, t, judge):
    table = cw.Comparisons.from_frame(t.select("left", "right", "worker", "label"), annotator="worker", outcome="label")
    at = {item: n for n, item in enumerate(table.items.tolist())}
    judge = judge.filter(pl.col("label") != "tie", pl.col("left").is_in(list(at)), pl.col("right").is_in(list(at)))
    i, j = (np.array([at[x] for x in judge[side]]) for side in ("left", "right"))
    won = np.where(judge["label"].to_numpy() == "left", 1.0, -1.0)
    half = {"left": 1.0, "right": 0.0, "tie": 0.5}
    wins, games = np.zeros(len(at)), np.zeros(len(at))
    for left, right, label in t.select("left", "right", "label").iter_rows():
        for item, share in ((left, half[label]), (right, 1.0 - half[label])):
            wins[at[item]] += share
            games[at[item]] += 1.0
    found = {"win rate": (wins + 0.5) / (games + 1.0)}
    found |= {key: cw.aggregate(table, key).scores for key in (*DEFAULTS["comparisons"], *beside("bradley-terry"))}
    right = {m: 0.5 + 0.5 * won * np.sign(x[i] - x[j]) for m, x in found.items()}
    return name, len(won), means({"votes predicted": right})


def asked(data):
    """Label sets: the questions about a text that were answered yes, the emotions that were rated 20 or more."""
    for name in ("framing", "lgbteen"):
        t = read(data, f"alttest_{name}").with_columns(
            item=pl.col("task").str.replace("__[^_]+$", ""), of=pl.col("task").str.extract("__([^_]+)$", 1),
            yes=pl.col("label").str.to_lowercase() == "yes",
        )  # fmt: skip
        people, llms = (t.filter(pl.col("worker").str.starts_with(who)) for who in ("human", "llm"))
        yield f"{name}, LLMs by people", llms, people
        one = sorted(people["worker"].unique().to_list())[0]
        yield (
            f"{name}, people by one of them",
            people.filter(pl.col("worker") != one),
            people.filter(pl.col("worker") == one),
        )
    for least in (20, 50):
        both = (
            t.filter(pl.col("task") <= 6 * HEADLINES).with_columns(
                item=((pl.col("task") - 1) % HEADLINES).cast(pl.String),
                of=((pl.col("task") - 1) // HEADLINES).cast(pl.String), yes=pl.col("label") >= least,
            )
            for t in (read(data, "n_emotion"), truth(data, "n_emotion"))
        )  # fmt: skip
        yield f"n_emotion, {least} or more", *both


def label_sets(data):
    for name, t, judge in asked(data):
        sets = [
            (item, who, g.filter("yes")["of"].to_list())
            for (item, who), g in t.group_by(["item", "worker"], maintain_order=True)
        ]
        table = cw.LabelSets.from_records(sets)
        at, place = ({x: n for n, x in enumerate(names.tolist())} for names in (table.items, table.labels))
        judge = judge.filter(pl.col("item").is_in(list(at)), pl.col("of").is_in(list(place)))
        judge = judge.group_by("item", "of", maintain_order=True).agg(pl.col("yes").mean())
        n, k = (np.array([where[x] for x in judge[c]]) for where, c in ((at, "item"), (place, "of")))
        y, share = judge["yes"].to_numpy(), np.zeros((len(at), len(place)))
        for item, of, yes in t.group_by("item", "of").agg(pl.col("yes").mean()).iter_rows():
            if of in place:
                share[at[item], place[of]] = yes
        found = {"majority of each label": np.where(share == 0.5, 0.5, share > 0.5)[n, k]}
        for key in DEFAULTS["label-sets"]:
            found[key] = cw.aggregate(table, key).member[n, k].astype(float)
        for base in beside("one-coin"):
            found[f"{base}, label by label"] = cw.aggregate(table, "binary-relevance", base=base).member[n, k] * 1.0
        yield name, len(at), f1_and_accuracy(found, y, n)


def f1_and_accuracy(found, y, unit):
    """By document: what was found, there, and both."""
    sums = {}
    for m, p in found.items():
        each = (p * y, p, y, p * y + (1.0 - p) * (1.0 - y), np.ones_like(y, dtype=float))
        sums[m] = np.stack([np.bincount(unit, x, unit.max() + 1) for x in each], axis=1)

    def figures(rows):
        total = {m: x[rows].sum(axis=0) for m, x in sums.items()}
        return {
            "accuracy": {m: float(x[3] / x[4]) for m, x in total.items()},
            "F1": {m: float(2.0 * x[0] / (x[1] + x[2])) for m, x in total.items()},
        }

    return figures


def pico(data):
    """Document -> annotator -> (start, end): of the crowd, and of the professionals."""
    for who in ("crowdsourcing", "professional"):
        lines = (data / "pico_spans" / f"PICO-annos-{who}.json").read_text(encoding="utf-8").splitlines()
        yield {d["docid"]: d["Participants"] for d in map(json.loads, lines)}


def tags(data, width=6):
    """Spans as tags of pieces of six characters, about a word; where documents end is not known: at the last span."""
    crowd, experts = pico(data)
    rows, y = [], {}
    for name, by in crowd.items():
        expert = next(iter(experts.get(name, {}).values()), [])
        end = max([b for some in (*by.values(), expert) for _, b in some], default=0)
        if not end or name not in experts:
            continue
        middle = np.arange(0, end, width) + width / 2

        def inside(some, middle=middle):
            return np.any([(middle >= a) & (middle < b) for a, b in some] or [np.zeros(len(middle), bool)], axis=0)

        y[name] = inside(expert)
        rows += [(name, who, t, "I" if x else "O") for who, some in by.items() for t, x in enumerate(inside(some))]
    table = cw.Tags.from_frame(
        pl.DataFrame(rows, schema=["sequence", "annotator", "position", "tag"], orient="row")
    )  # fmt: skip
    names = table.sequences.tolist()
    expert, unit = np.concatenate([y[x] for x in names]) * 1.0, np.repeat(np.arange(len(names)), np.diff(table.starts))
    I = table.votes.classes.tolist().index("I")  # noqa: E741
    share = cw.aggregate(table.votes, "majority").posterior[:, I]
    found = {"majority of each token": np.where(share == 0.5, 0.5, share > 0.5)}
    for key in (*DEFAULTS["tags"], *beside("hmm-crowd")):
        found[key] = (cw.aggregate(table, key).label_codes == I) * 1.0
    yield "pico_spans", len(names), f1_and_accuracy(found, expert, unit)


def similarities(data):
    """Pairs of items that an annotator labelled, the same label or not; the clusters are the classes of the truth."""
    rng = np.random.default_rng(0)
    for name, most in (("bluebird", 108), ("dog", 300), ("face", 300), ("music_genre", 300), ("labelme", 300)):
        known = dict(truth(data, name).iter_rows())
        some = rng.choice(sorted(known), min(most, len(known)), replace=False).tolist()
        rows = []
        for (who,), g in read(data, name).filter(pl.col("task").is_in(some)).group_by("worker", maintain_order=True):
            i, j = np.triu_indices(g.height, 1)
            chosen = rng.permutation(len(i))[: 5 * g.height]
            item, label = g["task"].to_numpy(), g["label"].to_numpy()
            rows += [
                (str(item[a]), str(item[b]), str(who), bool(label[a] == label[b]))
                for a, b in zip(i[chosen], j[chosen], strict=True)
            ]
        table = cw.Similarities.from_frame(
            pl.DataFrame(rows, schema=["item_a", "item_b", "annotator", "same"], orient="row")
        )
        known = {str(item): label for item, label in known.items()}
        y = np.unique([known[x] for x in table.items.tolist()], return_inverse=True)[1]
        share = np.bincount(table.pair, table.same, table.n_pairs) / np.diff(table.indptr)
        a, b = table.pairs[share > 0.5].T
        graph = coo_array((np.ones(len(a)), (a, b)), shape=(len(y), len(y)))
        found = {"components of the majority": connected_components(graph, directed=False)[1]}
        found |= {key: cw.aggregate(table, key).cluster_codes for key in DEFAULTS["similarities"]}

        def figures(rows, found=found, y=y):
            return {"adjusted Rand index": {m: rand(x[rows], y[rows]) for m, x in found.items()}}

        yield name, len(y), figures


def ratios(tables):
    """Figures that are sums over sums, from the parts of each unit (figure -> method -> units x 2)."""
    return lambda rows: {
        f: {m: float(np.divide(*t[rows].sum(axis=0))) for m, t in by.items()} for f, by in tables.items()
    }


def texts(data):
    for name in ("crowdspeech_dev_clean", "crowdspeech_test_other", "crowdwsa_t1"):
        folder = data / name
        table = cw.read_texts(folder / "labels.csv", text="label", truth_path=folder / "truth.csv", on_duplicate="last")
        table = table[::6] if QUICK else table
        cut, true = Tokens(), np.asarray(table.truth)
        known = np.flatnonzero(true != "")
        right = cut.words(true[known].tolist())

        def parts(said, right=right, cut=cut):
            pairs = [(a, b, " ".join(a), " ".join(b)) for a, b in zip(cut.words(said), right, strict=True)]
            errors = np.array([(-edit_distance(a, b), len(b)) for a, b, _, _ in pairs], dtype=float)
            return errors, np.array([(chrf([a], [b])[0, 0], 1.0) for *_, a, b in pairs])

        first = table.texts[table.text[table.indptr[:-1][known]]].tolist()
        found = {"one text of each item": parts(first)}
        for key in ("medoid", *DEFAULTS["texts"], *beside("rasa")):
            found[key] = parts(cw.aggregate(table, key).texts[known].tolist())
        by = ({m: both[i] for m, both in found.items()} for i in range(2))
        yield name, len(known), ratios(dict(zip(("- word error rate", "chrF"), by, strict=True)))


def boxes(data):
    folder = data / "boxes_crowd"
    table = cw.read_boxes(folder / "labels.csv", truth_path=folder / "truth.csv")
    by = {"F1, IoU 0.5": {}, "F1, IoU 0.75": {}}
    for key in ("box-majority", *DEFAULTS["boxes"], *beside("box-fusion")):
        for figure, t in zip(by, cw.aggregate(table, key).matches(table.truth, (0.5, 0.75)), strict=True):
            by[figure][key] = np.stack([2.0 * t[:, 0], t[:, 1] + t[:, 2]], axis=1)
    yield "boxes_crowd", len(t), ratios(by)


def masks(data):
    stored = np.load(data / "masks_cells" / "masks.npz")
    rows, true = [], {}
    names = sorted({key.rsplit("/", 1)[0] for key in stored})
    for name in names[:: 6 if QUICK else 1]:
        width = stored[f"{name}/shape"][2]
        crowd = np.unpackbits(stored[f"{name}/crowd"], axis=2)[:, :, :width]
        rows += [(name, f"s{m}", mask) for m, mask in enumerate(crowd)]
        true[name] = np.unpackbits(stored[f"{name}/gold"], axis=1)[:, :width]
    table = cw.Masks.from_records(rows)
    dice = {}
    for key in ("mask-majority", *DEFAULTS["masks"], *beside("staple")):
        pairs = cw.aggregate(table, key).against(true)
        dice[key] = np.array([2.0 * (a & b).sum() / (a.sum() + b.sum()) for a, b in pairs])
    yield "masks_cells", len(true), means({"Dice": dice})


def pico_table(data):
    """Participants of a trial, label P: what annotators marked, and the true spans of each item."""
    crowd, experts = pico(data)
    names = [name for name in crowd if name in experts]
    table = cw.Spans.from_records([
        (name, who, *span)
        for name in names for who, some in crowd[name].items()
        for span in [("P", a, b) for a, b in some] or [(None, None, None)]
    ])  # fmt: skip
    at = [next(iter(experts[name].values()), []) for name in table.items.tolist()]
    return table, [[("P", a, b) for a, b in some] for some in at]


def spans(data):
    """Of annotators of one label."""
    table, true = pico_table(data)
    by = {"F1 by overlap": {}, "F1 of characters": {}}
    for key in ("character-majority", *DEFAULTS["spans"], *beside("span-majority")):
        found = cw.aggregate(table, key).spans()
        pairs = [(matches(a, b, HALF), shared_characters(a, b)) for a, b in zip(found, true, strict=True)]
        sizes = [len(a) + len(b) for a, b in zip(found, true, strict=True)]
        by["F1 by overlap"][key] = np.array([(2.0 * n, size) for (n, _), size in zip(pairs, sizes, strict=True)])
        by["F1 of characters"][key] = np.array([(2.0 * both, a + b) for _, (both, a, b) in pairs])
    yield "pico_spans", len(true), ratios(by)


def rand(x, y):
    return float(adjusted_rand(x, y, resamples=1))


TYPES = {
    "ordinal": ordinal, "ratings": ratings, "rankings": rankings, "comparisons": comparisons,
    "label-sets": label_sets, "tags": tags, "similarities": similarities, "texts": texts, "boxes": boxes,
    "masks": masks, "spans": spans,
}  # fmt: skip
DEFAULTS = {name: (cw.registry.ANSWER_TYPES[name].default,) for name in TYPES}
BASELINES = {
    "ordinal": {"accuracy": "majority", "- MAE": "median"}, "ratings": {"- RMSE / mean's": "mean"},
    "rankings": {"Kendall's tau": "borda"}, "comparisons": {"votes predicted": "win rate"},
    "label-sets": {"accuracy": "majority of each label", "F1": "majority of each label"},
    "tags": {"accuracy": "majority of each token", "F1": "majority of each token"},
    "similarities": {"adjusted Rand index": "components of the majority"},
    "texts": {"- word error rate": "medoid", "chrF": "medoid"},
    "boxes": {"F1, IoU 0.5": "box-majority", "F1, IoU 0.75": "box-majority"},
    "masks": {"Dice": "mask-majority"},
    "spans": {"F1 by overlap": "character-majority", "F1 of characters": "character-majority"},
}  # fmt: skip


HEAD = """\
The default of every answer type other than votes beside its trivial baseline, on every real set of such answers.
*Lead* is how much better the default is, with the standard error over resampled items; it is **bold** where the
default is behind by more than a point and more than two errors. The best other method is chosen with hindsight.
Where a set has no truth, half of the answers on each item are aggregated and the others judge (*halves*); on sets
with people and LLMs, the LLMs are aggregated and people judge. A graph of items has no real set here: [simulated
ones](../answers-graph.md).

`python benchmarks/default_answers.py DATA` measures it all again, in five minutes."""
NOTES = {
    "ordinal": """\
Behind on two panels of LLMs that people judge. LLMs use the scale differently (on 10k_prompts they give twice as
many 2s as people, on summeval a third of the 5s), which nothing in their own answers shows; their median, nearer
to the middle of the scale, is hurt least. On adult3, with 35 votes an item, the sample's own median is the best
guess of the others' by half a point. How it was chosen, and how often the truth was looked at: [ordinal
classes](../answers-ordinal.md).""",
    "ratings": """\
`gaussian` is mixed with the mean as far as held-out ratings ask for it, and so are
`covariance` and `bayes-iterative`.""",
    "rankings": """\
Rankings are made of ratings, equal ones in random order: of all that an annotator rated, or (summeval) sixteen
systems by each LLM on each of twenty texts.""",
    "comparisons": """\
Nothing was changed. Of convarg_pairs half of the pairs are kept aside, and all votes on them judge; of MT-bench
scores of six models from GPT-4 or from people on half of the questions.""",
    "label-sets": """\
Sets are the questions about a text that were answered yes (framing, lgbteen), and the emotions in a headline that
were rated 20, or 50, or more. Behind on the last: the crowd says 50 or more twice as often as the experts' mean does,
and where six of ten say so it holds for a fifth. Any model that finds more than the majority does is worse there, and
no answer shows it. At 20, 30 and 40 it is better in F1. The truth was looked at for seven priors and strengths of
sharing, none of which helps; nothing was changed.""",
    "tags": """\
Spans of characters as tags of pieces of six characters.""",
    "similarities": """\
Pairs of items that an annotator labelled, five for each label: the same class or not. Components of the pairs that
the majority calls the same are nearly always one. Nothing was changed.""",
    "texts": """\
The medoid is the text that is most like the others on its item, the simplest answer that looks at all of them. On
crowdwsa_t1, translations, the default is the medoid.""",
    "boxes": """\
The truth names objects that no worker drew, which bounds recall.""",
    "masks": """\
The masks of all annotators are too large, which no mask shows: [masks](../answers-masks.md#what-to-expect).""",
    "spans": """\
Participants of a trial, by the majority of each character or of spans put together.""",
}


def measured(data, kind, most=None):
    """One row per set and figure: every method's value, and the default's lead over the baseline with its error; of the
    first sets alone, with ``most``."""
    rng, out, default = np.random.default_rng(0), [], DEFAULTS[kind][0]
    for name, size, figures in islice(TYPES[kind](data), most):
        lead = defaultdict(list)
        for _ in range(RESAMPLES):
            for figure, by in figures(rng.integers(0, size, size)).items():
                lead[figure].append(by[default] - by[BASELINES[kind][figure]])
        for figure, by in figures(np.arange(size)).items():
            gap = by[default] - by[BASELINES[kind][figure]]
            error = float(np.nanstd(lead[figure]))
            row = {
                "type": kind,
                "set": name,
                "units": size,
                "figure": figure,
                "values": by,
                "lead": gap,
                "error": error,
            }
            out.append(row)
            print(kind, name, figure, {m: round(v, 3) for m, v in by.items()}, f"{gap:+.3f} ± {error:.3f}", flush=True)
    return out


def section(data, kinds=()):
    """The Markdown of all types, of which some are measured first (all, where none is named)."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    warnings.simplefilter("ignore", UserWarning)  # the order of grades, parts that are not joined
    for kind in kinds or TYPES:
        rows = [row for row in rows if row["type"] != kind] + measured(data, kind)
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    parts = [HEAD]
    for kind in TYPES:
        parts.append(f"### {kind}: `{DEFAULTS[kind][0]}`")
        parts += [table([r for r in rows if r["type"] == kind], figure, *pair) for figure, pair in shown(kind)]
        parts.append(NOTES[kind])
    return "\n\n".join(parts) + "\n"


def shown(kind):
    return ((figure, (baseline, DEFAULTS[kind][0])) for figure, baseline in BASELINES[kind].items())


def table(rows, figure, baseline, default):
    """One line per set: baseline, default, its lead, and the best of the other methods."""
    sign, lines = -1.0 if figure.startswith("- ") else 1.0, []
    for row in (row for row in rows if row["figure"] == figure):
        values, mark = row["values"], "**" if behind(row) else ""
        best = max((m for m in values if m not in (baseline, default)), key=values.get, default=None)
        lead = f"{mark}{row['lead']:+.3f} ± {row['error']:.3f}{mark}"
        other = "" if best is None else f"{sign * values[best]:.3f} ({words(best)})"
        lines.append((row["set"], f"{sign * values[baseline]:.3f}", f"{sign * values[default]:.3f}", lead, other))
    head = ("set", words(baseline), "default", "lead", "best other method")
    order = f"{figure.removeprefix('- ')}, {'lower' if sign < 0 else 'higher'} is better:"
    return f"{order}\n\n{markdown(head, lines, (0, 4))}".rstrip()


def behind(row):
    """Whether the default is behind its baseline by more than a point and more than two errors."""
    return row["lead"] < -max(0.01, 2.0 * row["error"])


def words(method):
    return method if (" " in method and "=" not in method) or method == "borda" else f"`{method}`"


def write(data, kinds=()):
    PAGE.write_text("# Defaults of other answer types\n\n" + section(data, kinds), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(TYPES), default=())
    given = parser.parse_args()
    write(given.data, given.only)


if __name__ == "__main__":
    main()
