"""The default of votes beside the majority and the best single method, on every real crowd, by regime.

python benchmarks/default.py [--data DIR]      docs/benchmarks/default.md and default-answers.md, in ten minutes
python benchmarks/default.py --votes           the first alone, with the stored figures of the other types
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from itertools import product
from pathlib import Path
from time import process_time
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import default_answers
import numpy as np
import polars as pl
from calibration import PEOPLE
from tables import markdown

import crowdwise as cw
from crowdwise.bench.runs import data_folder, load_votes
from crowdwise.core.crowd_kind import crowd_kind, crowd_sums

HERE = Path(__file__).resolve().parent
PAGE, RESULTS = HERE.parent / "docs" / "benchmarks" / "default.md", HERE / "results" / "default.json"
REGIMES = {
    "crowds of people": PEOPLE,
    "rules that abstain": ("rules_youtube", "rules_trec"),
    "LLM judges": ("llmbar_judges",),
    "quizzes": ("quiz_english", "quiz_medicine"),
}
SINGLE = ("mace", "one-coin", "dawid-skene", "anchored", "ibcc", "glad", "wawa", "m-msr", "zencrowd")
"""Methods of which the best is named with hindsight."""
TIMED = ("auto", "anchored")
"""Methods whose time is the least of three fits."""
BESIDE = (
    "people and LLMs on",
    "crowds",
    "found in",
    "majority",
    "`ignore`",
    "`auto`",
    "lead",
    "least gain",
    "most gain",
)
LEFT_OUT = ("regime left out", "chosen by the others", "its accuracy", "majority", "`auto`")
UNEVEN = ("crowds", "", "majority", "`auto`", "`mace`", "lead", "worst", "behind")
QUESTIONS = ("framing", "lgbteen", "summeval")
"""Sets of LLMs and people that ask several questions."""
FLOOR = 1e-6

HEAD = """# Defaults beside the simple answer

Each default beside its trivial baseline and the best single method with hindsight, on every real set at hand.
`python benchmarks/default.py` writes this page.

## Votes

Accuracy in %, ties split, on items with known truth. *Kind* is what `auto` took the crowd for, by the votes alone
([how](../methods.md#auto)). *Best* is the best of {single} on that set, chosen by its truth, which is
not known otherwise.

{table}

{summary}

### What was chosen, and on what

- **The kind of a crowd** is read from the votes. Share of votes by annotators of one label: {rules}; every other set
  has at most {most_one_sided:.0%}. Votes on an item as a share of the annotators: panels have {panels}; the next has
  {next_full:.0%}. The line of panels was drawn with truth in view: `ducks`, the next, would lose seven points more as a
  panel. That fewer than eight annotators are people was chosen on parts of the panels (5 or 7 of six sets: .6 less than
  as panels, 1.6 more than the majority, at worst 4 under it and not 24), on six LLMs and on simulated panels.
- **People**: the anchor was chosen on the crowds of people. Leaving out each in turn, log loss on the other 27 chooses
  .8 in 24 of 28 cases and .9 in 3; accuracy chooses .7 in 23. From .5 to .9 accuracy moves by .05 points.
- **Panels**: know or guess, and one vote per label behind a guess, not the ten of `mace`, were chosen with all five
  panels in view, and that classes may be uneven on those of the next table.
- **Rules**: votes weighed by agreement were chosen on the two sets, on parts of them in which one class is common, and
  on rules made of single words; shrunk by 3 to 1,000 times as much they do the same. Models of how often a rule speaks
  on each class have up to 3 points more on the two sets, and lose up to 55 where one class is common. With five
  or eight simulated models that answer everything beside the rules of either set (right on 60 to 90%), the crowd was
  taken for people, 1.5 to 6.7 points under the majority; as rules it is 0.1 to 2.3 under it.
  That a seventh of the votes makes a crowd one of rules (a third before) was chosen on simulated rules beside people,
  who lost up to 12 points to the majority as people and are 1 to 3 over it as rules; that such rules must have several
  labels, and others agree with them, on simulated bots and on parts of real crowds that passed for rules (half of
  `temp`: 59 % right as rules, 70 as people, majority 63; 90 % of a class of `imagenet15n`: 78, 91 and 74).
- **Leave one regime out**: if one method had to be chosen for all crowds by the *other* regimes, this is what the
  left-out regime would get. The figures of `auto` beside it are not left out: every regime here was in view when its
  model was chosen, so only crowds that are not on this page can test that.

{left_out}

### Uneven classes

Smaller crowds, most with a common class: six LLMs on one question each, measured by the majority of people
(`alttest_*`), and the items of the two sets of rules drawn so that one class has the share that is named, two draws
each. *Behind*: more than two points under the majority, of so many crowds.

{uneven}

Where most LLMs are wrong together on a question no vote shows it; the worst is `re7` of `framing`.

### Models beside people

Half of the people and six LLMs that answer everything, judged by the other half of the people (`alttest_*`; one crowd a
question, five draws each). *Found*: the LLMs [count less](../reliability-colluders.md#alike); `ignore`: `auto` with
`collusion="ignore"`, where every vote counts. The lead is over the majority, the gain over `ignore`.

{beside}

The rule was made on simulated models, on `wax` and `cebab_stars`, and on judges of `llmbar_judges` beside simulated
people; its constants are by the crowds of people above, where it finds nothing, and by simulated experts. `framing`,
`lgbteen` and `summeval` were looked at when it stood. Where it fails: three experts of 95% beside people of 50 to 60%
who fall for the same traps on many items lose 5 to 20 points by it; votes look the same. Similar models without others
beside them are not seen.

## Other answer types

Each has [figures of its own](default-answers.md); the default is *behind* where it is by more than a point and more
than two standard errors, and the page says why.

{others}

## Learners

With inputs, the default is a choice by held-out votes among learners of which logistic regression on the consensus is
one: [figures](default-learner.md).
"""


def measured(name: str, votes: cw.Votes) -> dict[str, Any]:
    """Accuracy of every method, log losses, and what can be seen of the crowd."""
    truth = np.asarray(votes.truth)
    known = np.flatnonzero(truth >= 0)
    row: dict[str, Any] = {"accuracy": {}, "seconds": {}}
    for key in ("majority", "auto", *SINGLE):
        times = []
        for _ in range(3 if key in TIMED else 1):
            began = process_time()
            found = cw.aggregate(votes, key)
            times.append(process_time() - began)
        row["seconds"][key] = min(times)
        row["accuracy"][key] = found.score(truth)
        if key == "auto":
            row["loss"] = loss(found.posterior[known], truth[known])
            row["expected"] = found.expected_accuracy()[0]
    n, K = np.diff(votes.indptr)[known, None], votes.n_classes
    row["shares_loss"] = loss((n * votes.shares()[known] + 0.5) / (n + 0.5 * K), truth[known])
    sums = crowd_sums(votes)
    row["kind"] = crowd_kind(votes)
    use = sums[:-2].reshape(-1, K)
    total = use.sum(axis=1)
    row["one_sided"] = float(total[(use.max(axis=1) == total) & (total >= 3)].sum() / total.sum())
    row["filled"] = float(total.sum() / (sums[-2] * (total > 0).sum()))
    print(name, row["kind"], {key: round(100 * x, 1) for key, x in row["accuracy"].items()}, flush=True)
    return row


def loss(q: Any, truth: Any) -> float:
    return float(-np.log(np.maximum(q[np.arange(len(q)), truth], FLOOR)).mean())


def mean(found: dict[str, Any], sets: Any, key: str) -> float:
    return 100 * float(np.mean([found[s]["accuracy"][key] for s in sets]))


def page(found: dict[str, Any]) -> str:
    """The section of votes."""
    rows, every = [], [s for sets in REGIMES.values() for s in sets]
    for regime, sets in REGIMES.items():
        for s in sets:
            own, best = found[s]["accuracy"], max(SINGLE, key=lambda m: found[s]["accuracy"][m])
            gap = 100 * (own["auto"] - own["majority"])
            rows.append(
                (s, found[s]["kind"], f"{100 * own['majority']:.1f}", f"{100 * own['auto']:.1f}", f"{gap:+.1f}",
                 f"{100 * own[best]:.1f} (`{best}`)", f"{found[s]['loss']:.2f}", f"{found[s]['shares_loss']:.2f}")
            )  # fmt: skip
        both = mean(found, sets, "majority"), mean(found, sets, "auto")
        best_mean = 100 * np.mean([max(found[s]["accuracy"][m] for m in SINGLE) for s in sets])
        losses = (np.mean([found[s][key] for s in sets]) for key in ("loss", "shares_loss"))
        rows.append(
            (f"**{regime}**", f"{len(sets)}", *(f"**{x:.1f}**" for x in both), f"**{both[1] - both[0]:+.1f}**",
             f"{best_mean:.1f}", *(f"{x:.2f}" for x in losses))
        )  # fmt: skip
    header = ("set", "kind", "majority", "`auto`", "", "best", "log loss", "of smoothed shares")
    under = {s: 100 * (found[s]["accuracy"]["auto"] - found[s]["accuracy"]["majority"]) for s in every}
    low = [f"`{s}` ({gap:+.1f})" for s, gap in under.items() if gap < -1.0]
    cost = np.median([found[s]["seconds"]["auto"] / max(found[s]["seconds"]["anchored"], 1e-3) for s in every])
    means = ", ".join(f"`{m}` {mean(found, every, m):.1f}" for m in ("majority", "auto", *SINGLE))
    summary = (
        f"Over all {len(every)}: {means}. More than a point under the majority: {', '.join(low) or 'none'}. "
        f"Processor time is {cost:.1f} times that of `anchored` (median)."
    )
    panels = [f"`{s}` {found[s]['filled']:.0%}" for s in every if found[s]["kind"] == "panel"]
    rules = [f"`{s}` {found[s]['one_sided']:.0%}" for s in every if found[s]["kind"] == "rules"]
    left = []
    for regime, sets in REGIMES.items():
        rest = [s for s in every if s not in sets]
        best = max(("majority", *SINGLE), key=lambda m: mean(found, rest, m))
        left.append((regime, f"`{best}`", *(f"{mean(found, sets, m):.1f}" for m in (best, "majority", "auto"))))
    return HEAD.format(
        single=", ".join(f"`{m}`" for m in SINGLE), table=markdown(header, rows, (0, 1, 5)), summary=summary,
        rules=", ".join(rules), panels=", ".join(panels),
        most_one_sided=max(found[s]["one_sided"] for s in every if found[s]["kind"] != "rules"),
        next_full=max(found[s]["filled"] for s in every if found[s]["kind"] == "people"),
        left_out=markdown(LEFT_OUT, left, (0, 1)), uneven=markdown(UNEVEN, found["uneven"]),
        beside=markdown(BESIDE, found["beside"]), others=others(),
    )  # fmt: skip


def uneven(data: Path) -> list[tuple[str, ...]]:
    """Majority, ``auto`` and ``mace`` on crowds most of which have a common class, by group."""
    groups: dict[str, list[tuple[cw.Votes, Any]]] = {}
    for name in QUESTIONS:
        table = default_answers.read(data, f"alttest_{name}").with_columns(
            of=pl.col("task").str.split("__").list.last()
        )
        for of in sorted(table["of"].unique().to_list()):
            part = table.filter(pl.col("of") == of)
            llms, people = (part.filter(pl.col("worker").str.starts_with(who)) for who in ("llm:", "human:"))
            votes, judges = cw.Votes.from_frame(llms), cw.Votes.from_frame(people)
            own = {c: k for k, c in enumerate(votes.classes.tolist())}
            label, shares = np.array([own.get(c, -1) for c in judges.classes.tolist()]), judges.shares()
            clear = (np.sort(shares)[:, -1] > np.sort(shares)[:, -2]) if judges.n_classes > 1 else np.ones(len(judges))
            said = dict(zip(judges.items.tolist(), np.where(clear, label[shares.argmax(axis=1)], -1), strict=True))
            if votes.n_classes > 1:
                truth = np.array([said.get(item, -1) for item in votes.items.tolist()])
                groups.setdefault("six LLMs, a question each", []).append((votes, truth))
    for name, common, most in (
        ("rules_youtube", (0, 1), (0.8, 0.9, 0.95)),
        ("rules_trec", (0, 1, 2, 5), (0.6, 0.85)),
    ):
        votes = load_votes(data, name)
        truth, rng = np.asarray(votes.truth), np.random.default_rng(0)
        for share in most:
            for k in np.repeat(common, 2):
                own, rest = np.flatnonzero(truth == k), np.flatnonzero((truth >= 0) & (truth != k))
                size = min(len(own) / share, len(rest) / (1.0 - share))
                some = (
                    rng.choice(own, int(size * share), replace=False),
                    rng.choice(rest, int(size * (1.0 - share)), replace=False),
                )
                items = np.sort(np.concatenate(some))
                part = votes[items]
                known = np.where(np.diff(part.indptr) > 0, truth[items], -1)
                groups.setdefault(f"`{name}`, {share:.0%} of a class", []).append((part, known))
    lines = []
    for group, crowds in groups.items():
        score = np.array(
            [[cw.aggregate(votes, m).score(truth) for m in ("majority", "auto", "mace")] for votes, truth in crowds]
        )
        gain, mean = 100 * (score[:, 1] - score[:, 0]), 100 * score.mean(axis=0)
        lines.append(
            (group, f"{len(crowds)}", *(f"{x:.1f}" for x in mean), f"{gain.mean():+.1f}", f"{gain.min():+.1f}",
             f"{(gain < -2.0).sum()}")
        )  # fmt: skip
    return lines


def beside(data: Path) -> list[tuple[str, ...]]:
    """Half of the people with all LLMs, by the other half: the majority, ``auto`` with every vote, and as it is."""
    lines = []
    for name in (*default_answers.ALTTEST[:2], "wax", *QUESTIONS):
        table = default_answers.read(data, f"alttest_{name}", None).with_columns(
            of=pl.col("task").str.split("__").list.last() if name in QUESTIONS else pl.lit("")
        )
        rows, found = [], 0
        for of, seed in product(sorted(table["of"].unique().to_list()), range(5)):
            part = table.filter(pl.col("of") == of).drop("of")
            people = pl.col("worker").str.starts_with("human")
            half, judges = default_answers.halves(part.filter(people), seed)
            votes = cw.Votes.from_frame(pl.concat([half, part.filter(~people)]))
            judged = cw.Votes.from_frame(judges)
            own = [{x: k for k, x in enumerate(names.tolist())} for names in (votes.items, votes.classes)]
            n, y = (
                np.array([codes.get(x, -1) for x in names.tolist()])[at]
                for codes, names, at in zip(
                    own, (judged.items, judged.classes), (judged.item, judged.label), strict=True
                )
            )
            n, y = n[(n >= 0) & (y >= 0)], y[(n >= 0) & (y >= 0)]
            if votes.n_classes < 2 or not len(n):
                continue
            shares, fits = votes.shares()[n], (cw.aggregate(votes, collusion="ignore"), cw.aggregate(votes))
            top = shares >= shares.max(axis=1, keepdims=True) - 1e-9
            majority = (top / top.sum(axis=1, keepdims=True))[np.arange(len(n)), y].mean()
            rows.append((majority, *((fit.label_codes[n] == y).mean() for fit in fits)))
            found += any("err together, as similar models do" in note for note in fits[1].notes)
        score = 100 * np.array(rows)
        gain = score[:, 2] - score[:, 1]
        lines.append(
            (f"`{name}`", f"{len(rows)}", f"{found}", *(f"{x:.1f}" for x in score.mean(axis=0)),
             f"{(score[:, 2] - score[:, 0]).mean():+.1f}", f"{gain.min():+.1f}", f"{gain.max():+.1f}")
        )  # fmt: skip
    return lines


def others() -> str:
    """Of every other answer type, how often its default is behind its trivial baseline."""
    rows, lines = json.loads(default_answers.RESULTS.read_text(encoding="utf-8")), []
    for kind, (default, *_) in default_answers.DEFAULTS.items():
        own = [row for row in rows if row["type"] == kind]
        late = [f"{row['set']} ({row['figure'].removeprefix('- ')})" for row in own if default_answers.behind(row)]
        base = ", ".join(f"`{b}`" for b in dict.fromkeys(default_answers.BASELINES[kind].values()))
        lines.append((kind, f"`{default}`", base, f"{len({row['set'] for row in own})}", "; ".join(late) or "none"))
    return markdown(("type", "default", "baseline", "sets", "behind on"), lines, (0, 1, 2, 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--votes", action="store_true")
    given = parser.parse_args()
    data = given.data or data_folder()
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {s: measured(s, load_votes(data, s)) for sets in REGIMES.values() for s in sets}
    found["uneven"], found["beside"] = uneven(data), beside(data)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if not given.votes:
        default_answers.write(data)
    PAGE.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
