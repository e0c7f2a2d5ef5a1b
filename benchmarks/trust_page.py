"""results/trust.json -> docs/benchmarks/trust.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

HEAD = """# Reliability measures

Written by `python benchmarks/trust_tables.py`. The power and the false positives of the detectors, and the coverage of
intervals. All settings are the defaults. Those that matter here (the leave-one-out evaluation, the number of factors,
the verdicts) were fixed on simulated crowds; the real sets were run once after that.
"""


def _number(x: float, digits: int = 3) -> str:
    return f"{x:.{digits}f}".removeprefix("0")


def _table(header: list[str], rows: list[list[str]], left: int = 1) -> str:
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def real_part(rows: list[dict[str, Any]]) -> str:
    body = [
        [
            r["set"],
            f"{r['annotators']}",
            f"{_number(r['majority before'])}, {_number(r['dawid-skene before'])}",
            f"{r['near']}",
            f"{_number(r['majority near'])}, {_number(r['dawid-skene near'])}",
            f"{r['spammers']}",
            f"{_number(r['majority spammers'])}, {_number(r['dawid-skene spammers'])}",
        ]
        for r in rows
    ]
    header = [
        "set",
        "annotators",
        "before: majority, dawid-skene",
        "near 0",
        "without them",
        "spammers",
        "without them",
    ]
    return f"""
## Spammers by covariance, on real crowds

The published algorithm removes all annotators in the cluster nearer 0 (`prune(votes, unclear=True)`); the verdict
*spammer* needs the test at level 0.05 as well. Ties are split.

{_table(header, body)}

The tutorial has bluebird .852 (majority) and .899 (Dawid-Skene) with 22 pruned, web .841 and .91 with 158, dog .819
and .834 with 12.
"""


def spammers_part(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0]["found"])
    body = []
    for name in names:
        caught, spammers, flagged, honest = (sum(r["found"][name][i] for r in rows) for i in range(4))
        body.append([name, f"{caught} of {spammers}", f"{flagged} of {honest}"])
    shares = [f"{r['share']:.0%}" for r in rows]
    return f"""
## Spammers, simulated

N = 10,000, K = 4, M = 20, {rows[0]["crowds"]} crowds for each share of spammers ({", ".join(shares)}); honest
annotators have Dirichlet(5, 1, 1, 1) rows and an accuracy at the threshold or above, spammers have label rates drawn
from the simplex.

{_table(["detector", "spammers detected", "honest annotators flagged"], body)}
"""


def colluders_part(rows: list[dict[str, Any]]) -> str:
    keys = ("sensitivity", "specificity", "all", "pruned", "honest")
    body = [[f"{r['share']:.0%}", *(_number(r[k]) for k in keys), _number(r["apart"])] for r in rows]
    header = [
        "colluders",
        "sensitivity",
        "specificity",
        "all votes",
        "without those found",
        "honest only",
        "largest gap",
    ]
    return f"""
## Colluders, simulated

N = 5,000, M = 60, K = 3, p_corr = 0.9, `find_colluders`, means of {rows[0]["crowds"]} crowds; accuracies are those
of `dawid-skene`, and the gap is between the last two.

{_table(header, body)}
"""


def groups_part(rows: list[dict[str, Any]]) -> str:
    keys = ("rand", "model_rand", "majority", "grouped-majority", "dawid-skene", "grouped")
    body = [[str(r["seed"]), str(r["found"]), *(_number(r[k]) for k in keys)] for r in rows]
    header = ["seed", "groups found", "adjusted Rand index", "that of the model", "majority", "grouped-majority"]
    return f"""
## Dependent groups, simulated

N = 5,000, M = 40, K = 3, J = 5.

{_table([*header, "dawid-skene", "grouped-dawid-skene"], body)}
"""


def bluebird_part(found: dict[str, Any]) -> str:
    body = [
        [
            name,
            _number(v["accuracy"]),
            f"{v['right']:g} of 108",
            "" if v["log_likelihood"] is None else f"{v['log_likelihood']:.1f}",
        ]
        for name, v in found.items()
        if isinstance(v, dict) and "accuracy" in v
    ]
    s, pairs = found["simulated"], found["pairs"]
    chance, hard = pairs * found["least_p"], found["hard"]
    seven, alone = (found[f"grouped-dawid-skene{which}"]["log_likelihood"] for which in (", 7 groups", ""))
    gain = seven - alone
    names = ("dawid-skene", "grouped-dawid-skene", "7 groups, found", "7 groups, given")
    simulated = [[n, _number(m), _number(e)] for n, m, e in zip(names, s["mean"], s["error"], strict=True)]
    return f"""
## Groups on bluebird

{_table(["method", "accuracy", "right", "log-likelihood"], body)}

The tutorial reports .916, 99 items of 108, for its grouped Dawid-Skene with J = 7, without the groups. We do not reach
that: two or three items, and one standard error is 0.028. Of {pairs} pairs the most significant has p =
{found["least_p"]:.4f}, where {chance:.1f} as small are expected by chance, so `find_groups` forms no groups of the
{found["groups"]} annotators. On {s["crowds"]} simulated crowds of this size with seven groups (second column: the
standard deviation, over crowds, of the difference from `dawid-skene`):

{_table(["method", "mean accuracy", "deviation of the difference"], simulated)}

The likelihood alone prefers seven groups, by {gain:.0f} nats; on crowds with hard items and no groups they gain
{hard[2]:.0f} nats too, and accuracy goes from {_number(hard[0])} to {_number(hard[1])}. That is why groups are formed
only where a pair is significant.
"""


def alarms_part(rows: list[dict[str, Any]]) -> str:
    body = [
        [
            r["detector"],
            f"{r['alarms']} of {r['trials']} {r['unit']}s",
            f"{r['p']:.2f}",
            f"{r['all'] / r['of']:.1%} of {r['of']:,}" if "all" in r else "",
        ]
        for r in rows
    ]
    return f"""
## False alarms

200 simulated honest crowds for each row, level 0.05. For detectors of dependence and flags the rate is the probability
that any annotator is flagged: a trial is a crowd. For detectors of spammers it is that of an annotator at or above the
threshold: a trial is one of these, drawn at random from each crowd, and the last column has the share among all of
them. The p-value is that of the binomial test that the rate is no higher than 0.05.

{_table(["detector", "false positives", "p", "all annotators"], body)}

`spem` states no rate (pruning is decided by evidence, not by a test); `raykar_yu_spammers` of its consensus
does. The crowds are drawn by `benchmarks/false_alarms.py`: for dependence, eight types with 5 to 30 annotators, 150
to 1,500 items, complete and sparse, with hard items, outliers and spammers; for spammers, 40 to 500 items, 2 to 10
votes each, a third of the annotators of every second crowd exactly at the threshold.
"""


def accuracy_part(rows: list[dict[str, Any]]) -> str:
    methods = list(rows[0]["held"])
    shapes = list(dict.fromkeys(r["shape"] for r in rows))
    body, each, known = [], [], []
    for shape in shapes:
        for kind in dict.fromkeys(r["kind"] for r in rows):
            some = [r for r in rows if r["shape"] == shape and r["kind"] == kind]
            cells = []
            for m in methods:
                held = [r["held"][m] for r in some]
                each += held if m != "truth known" else []
                known += held if m == "truth known" else []
                cells.append(_number(sum(held) / len(held)))
            body.append([shape, kind, f"{sum(r['width'] for r in some) / len(some):.2f}", *cells])
    inside = sum(0.93 <= h <= 0.97 for h in each) / len(each)
    mean = sum(each) / len(each)
    return f"""
## Intervals of accuracy

The coverage of the 95 % interval of `consensus.accuracy()`: how often it contains the true accuracy of an annotator,
the mean of two, three and five classes. `assess_annotators` has the same intervals.

{_table(["crowd", "annotators", "mean width", *methods], body, 2)}

By number of classes, the mean is {_number(mean)}; {inside:.0%} of the cells are between .93 and .97, the least is
{_number(min(each))} (`dawid-skene`, three votes per item, five skewed classes: it confuses a rare class with another)
and the most {_number(max(each))} (the sparsest crowds, whose intervals are most of 0 to 1). With known truth, on the
same crowds, it is {_number(sum(known) / len(known))}, from {_number(min(known))} to {_number(max(known))}.
"""


def agreement_part(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0]["held"])
    body = [[name, *(_number(r["held"][name]) for r in rows)] for name in names]
    every = [h for r in rows for h in r["held"].values()]
    return f"""
## Intervals of agreement

The coverage of the 95 % interval: how often it contains the value of the coefficient on 200,000 items by the same
annotators, {rows[0]["crowds"]} crowds each (standard error: .015).

{_table(["coefficient", *(r["shape"] for r in rows)], body)}

The mean is {_number(sum(every) / len(every))}, the least {_number(min(every))}, the most {_number(max(every))}.
"""


def few_part(rows: list[dict[str, Any]]) -> str:
    sizes = sorted({r["items"] for r in rows})
    of = {(r["crowd"], r["items"]): list(r["held"].values()) for r in rows}
    body = [
        [name, *(f"{_number(sum(h) / len(h), 2)} ({_number(min(h), 2)})" for h in (of[name, n] for n in sizes))]
        for name in dict.fromkeys(r["crowd"] for r in rows)
    ]
    every = {n: [h for (_, items), held in of.items() if items == n for h in held] for n in sizes}
    body.append(["all", *(f"{_number(sum(h) / len(h), 2)} ({_number(min(h), 2)})" for h in every.values())])
    return f"""
### Few items

The coverage of the 95 % interval where there are few items (pairs of items, rankings, sequences), {rows[0]["crowds"]}
draws each: the mean of all coefficients that the answers have, and the least. Crowds whose items are all alike have no
interval. With fewer than 10 items no interval is given; that rule is off here. Standard error of a coefficient: .015.

{_table(["crowd", *(f"{n} items" for n in sizes)], body)}
"""


def rings_part(found: dict[str, Any]) -> str:
    from trust_rings import CHOSEN_ON, CROWDS, DAMAGED, DRAWS, KINDS, METHODS, OTHER_KINDS, SHARES, SIZES, SUMMED

    def of(rows: list[dict[str, Any]], column: str) -> int:
        return sum(int(r[column]) for r in rows)

    def percent(part: float, whole: float) -> str:
        return f"{100 * part / whole:.0f}" if whole else "–"

    def mean(rows: list[dict[str, Any]], column: str) -> float:
        return sum(r[column] for r in rows) / max(len(rows), 1)

    def line(name: str, rows: list[dict[str, Any]]) -> list[str]:
        able, runs = of(rows, "able"), of(rows, "runs")
        return [
            name, f"{runs:,}", percent(of(rows, "found"), able), percent(of(rows, "plain"), able),
            *(percent(of(rows, column), runs) for column in ("accused", "plain accused")),
            *(f"{sum(r[column] for r in rows) / max(runs, 1):.1f}" for column in SUMMED),
            *(percent(of(rows, column), runs) for column in ("under without", "under majority")),
        ]  # fmt: skip

    header = [
        "rings", "runs", "found", "plain test", "runs with a false accusation", "plain test", "without the ring",
        "`auto`", '`collusion="ignore"`', "majority", "`auto` > 2 points under without", "> 1 point under the majority",
    ]  # fmt: skip
    cells = [dict(zip(found["cells"]["columns"], row, strict=True)) for row in found["cells"]["rows"]]
    runs = [r for r in cells if r["kind"] in KINDS]
    halves = (("sets the constants were chosen on", CHOSEN_ON), ("sets left out", tuple(set(CROWDS) - set(CHOSEN_ON))))
    body = [line(name, [r for r in runs if r["set"] in sets]) for name, sets in halves]
    words = {"mistakes": "the same mistakes", "random": "the same random labels", "noisy": "noisy copies of mistakes"}
    words |= {
        "targeted": "mistakes on a fifth of the items",
        "drip": "mistakes on the second half",
        "truth": "the truth",
    }
    body += [line(words[kind], [r for r in runs if r["kind"] == kind]) for kind in KINDS]
    body += [line(f"{100 * share:.0f} % of the votes", [r for r in runs if r["share"] == share]) for share in SHARES]
    body += [line(f"by {way}", [r for r in runs if r["way"] == way]) for way in ("conversion", "addition")]
    body += [line("all", runs)]
    others = [line(words[k], rows) for k in OTHER_KINDS if (rows := [r for r in cells if r["kind"] == k])]
    by_set = [line(name, [r for r in runs if r["set"] == name]) for name in CROWDS]
    blue = [
        [
            words[kind], f"{of(rows, 'found')} of {11 * len(rows)}, {of(rows, 'accused')}",
            *(f"{mean(rows, c):.1f} ({min(r[c] for r in rows):.1f})" for c in (
                "auto", "ignored", "without", "majority", "majority without", "m-msr", "grouped-dawid-skene"
            )),
        ]
        for kind in KINDS for rows in [[r for r in found["bluebird"] if r["kind"] == kind]]
    ]  # fmt: skip
    sizes = [r["share"] for r in found["damage"]]
    harm = [[f"`{key}`", *(f"{r[key]:.1f}" for r in found["damage"])] for key in METHODS]
    harm_header = ["method", *("no ring" if s == 0 else f"{100 * s:.0f} %" for s in sizes)]
    blue_header = [
        "ring", "found, accused", "`auto`", '`collusion="ignore"`', "without the ring", "majority", "without the ring",
        "`m-msr`", "`grouped-dawid-skene`",
    ]  # fmt: skip
    still, honest = found["as they are"], found["parts"]
    draws = honest["draws"] | {"all": sum(honest["draws"].values())}
    by_kind = {kind: sum(kind in (r["kind"], "all") for r in honest["accused"]) for kind in draws}
    part_rows = [[k, f"{n:,}", str(by_kind[k]), f"{100 * by_kind[k] / n:.1f}"] for k, n in draws.items()]
    part_falls = [
        [
            r["set"], f"{r['items']:,} {r['kind']}" if "items" in r["kind"] else "half of the annotators",
            str(r["accused"]), *(f"{r[c]:.1f}" if c in r else "–" for c in ("auto", "ignored", "majority")),
        ]
        for r in honest["accused"]
    ]  # fmt: skip
    falls_header = ["accused in", "of", "accused", "`auto`", '`collusion="ignore"`', "majority"]
    accused_in = _table(falls_header, part_falls, 2) + "\n\n" if part_falls else ""
    on_part = ["members found, %", *(f"{100 * hit / able:.0f}" for _, able, hit in found["on part"])]
    accused = [f"{r['set']} ({r['accused']})" for r in still if r["accused"]]
    shapes = [
        [
            name, f"{of(rows, 'found')} of {of(rows, 'members')}", str(of(rows, "accused")), str(of(rows, "one")),
            *(f"{mean(rows, key):.1f}" for key in ("auto", "ignored", "majority", "without")),
        ]
        for name in dict.fromkeys(r["shape"] for r in found["shapes"])
        for rows in [[r for r in found["shapes"] if r["shape"] == name]]
    ]  # fmt: skip
    shape_header = ["replaced", "found", "accused", "as one", "`auto`", '`collusion="ignore"`', "majority", "without"]
    return f"""
## Rings planted in real crowds

Written by `python benchmarks/trust_rings.py`. In {len(CROWDS)} real crowds a ring gives one answer per item: mistakes
(wrong nine times in ten), random labels, or mistakes that each member copies nine times in ten. It holds 5 to 30 % of
the votes and has three members or more; its members are annotators of the crowd (conversion), or are added and vote on
the items of others; {found["seeds"]} seeds each. *Found*: percent of the members who share 30 items or more with
another member. *Plain test*: pairs with more mistakes in common than chance explains, by the labels of `dawid-skene`
on all votes, which the ring may have captured. Accuracy in %, on items that have votes from outside the ring.

The constants of the search were chosen on every second of the sets, and on {len(still) - len(CROWDS)} other crowds as
they are; of the sets left out, bluebird alone was looked at before. One rule came after a first run of all sets: that
annotators who guess are no opposition, for a ring on half of the items of d_sentiment.

{_table(header, body)}

By set:

{_table(header, by_set)}

Where `auto` falls, most members share few items (cifar10s, labelme: 25 or fewer, in closed batches), or classes are so
skewed that label habits explain most agreement (d_product). Where it is under the majority (ducks, zencrowd_us), it is
so without the ring, too.

**As they are.** Of {len(still)} real crowds without a planted ring, annotators are accused in
{", ".join(accused) if accused else "none"}; the labels and probabilities of `auto` are bit for bit those of
`collusion="ignore"` in {sum(r["same"] for r in still)} of {len(still)}.

**Other attacks**, 20 % of the votes by conversion, two seeds: members answer honestly but for a fifth of the items, or
on the first half of the items (a drip attack); and copies of the truth, of which five or more count as one.

{_table(header, others)}

Collusion on few items leaves the members in agreement with the rest, and is not found by its agreement alone. Members
found, by the share of the items on which they collude, mistakes by 20 % of the votes, two seeds:

{_table(["share of the items", *(f"{part:.0%}" for part, *_ in found["on part"])], [on_part], 1)}

So a ring is seen from about six items in ten on. The drip
attack has timestamps (items are answered in their order), and rings are looked for in later votes as well; that search
was chosen with this attack in view.

### Other shapes

40 simulated annotators who are right on 65 to 90 % of 300 items, 20 votes each; some are replaced, 5 draws each.
*Found*: members called a ring; *accused*: others; *as one*: who count as one vote and are not accused. *Without*: all
members left out, or all but one where they are no ring. Mean accuracy of `auto` in %.

{_table(shape_header, shapes, 1)}

Five or more who always give the same answers count as one vote, unless so much skill explains it. Its
constants were chosen on such simulations and on parts of the real crowds above, where weaker ones took some who know in
trec2011_vuurens for one person (up to 3 points lost); on the whole sets it finds none. Models that are alike but do not
copy keep their votes, and where they label everything and people little, they decide (400 items, 6 models right on 70 %
of them, 14 people on 150 each: `auto` 66 to 74 %, majority 79 to 84 % in four draws). Groups by `find_groups` as one
vote would help there, but cost `auto` 19 points on llmbar_judges and 5 on trec2011_vuurens, whose groups are right. Two
camps of half each look the same from both sides: `diagnose` names a camp and drops none who agree with it; with one
`trusted` annotator all 100 members are found and no other.

### Sub-samples of honest crowds

The same {len(still)} crowds, {DRAWS} draws each: {", ".join(str(n) for n in SIZES)} random items, as many of those with
truth where not all have it, and all votes of a random half of the annotators. Accuracy in % on items with truth.

{_table(["sub-samples of", "draws", "with an accusation", "percent"], part_rows)}

{accused_in}Three rules of `core/collusion.py` protect the honest. One that the others agree with is exempt (`AGREES`).
Before that rule, on other draws of these crowds and twelve more, 19 of 2,316 had an accusation, 16 of them of
annotators of trec2011_vuurens who are right on 94 to 100 %: `auto` had 75.7 instead of 82.0 on its items with truth.
And so is one whose members split on the same items (`judged`): most LLM judges are wrong together on pairs made to
mislead them, and those who are right contradict the rest as a ring does; but copies slip on any item, and judges on the
hard ones. On 220 parts of llmbar_judges (50 or 100 random items, 100 or 300 of the half on which votes differ most)
accusations fell from 117, which cost up to 52 points, to 6, all on 50 or 100 random items (0 to 24 points). On 2,502
parts of 47 crowds, thirteen of them used for nothing else here, they fell from 31, 30 of them of llmbar_judges, to 4.
Planted rings are found as before: on two fresh seeds, with rings that answer for themselves on a tenth or a fifth of
the items besides, 6,067 of 6,252 members with and without the rule. Of 560 noisy rings in seven crowds it spares none.
llmbar_judges is the one real crowd with the fault, so it was in view: the form of the rule was settled on its parts, on
one seed of the rings and on bluebird; no other crowd of judges shows the fault, but simulated ones do. The third rule
counts items, not pairs of votes, as witnesses: the gap less its margin is at least 2.5 of its standard errors over
items (`gap_error`). Of 60 draws of 50 items of llmbar_judges 4 had an accusation of judges who are right on 84 to
92 %, and cost up to 22 points; none has now, nor any of 60 of 100 items, and one of 60 of 25. On a seed of
the rings that nothing was chosen on, 2,322 of 2,419 members are found with and without it. The bar was set with
bluebird and these draws in view: 3.1 would miss a ring of random labels there. Its price: where members
answer for themselves on three fifths of the items, 7 % are found and not 23.

### 11 of 39 annotators of bluebird

Identical answers to all 108 items (noisy: nine in ten), {len(found["bluebird"]) // 3} seeds: members found, others
accused, and mean accuracy (the least in brackets).

{_table(blue_header, blue)}

### Damage by size

Rings of mistakes by conversion, accuracy in %, mean of {len(DAMAGED)} crowds; the votes
that the ring replaces are lost, too.

{_table(harm_header, harm)}
"""


def effect_part(rows: list[dict[str, Any]]) -> str:
    keys = ("oracle", "majority", "dawid-skene", "auto")
    body = [[f"{round(100 * r['share'])} % {r['kind']}", *(_number(r[key]) for key in keys)] for r in rows]
    return f"""
## What spammers and malicious annotators cost

The tutorial's test: 10,000 items, four classes, 20 annotators who label everything, three crowds each. Spammers answer
from habit; malicious ones are right on 15 % and else say any other class. The oracle knows every confusion matrix. As
the tutorial says: malicious annotators inform a method that can turn their answers round, and spammers inform none.
Where four fifths are malicious no method can know which camp is right without gold.

{_table(["of the annotators", *(f"`{key}`" if key != "oracle" else key for key in keys)], body)}
"""


def attacked_part(rows: list[dict[str, Any]]) -> str:
    header = [
        "set", "colluders", "majority", "dawid-skene", "m-msr", "H", "TA", "honest only", "`auto`", "H: found, accused",
        "TA: found, accused",
    ]  # fmt: skip
    body = [
        [
            r["set"], f"{100 * r['share']:.0f} %",
            *(_number(r[c]) for c in ("majority", "dawid-skene", "m-msr", "H", "TA", "honest", "auto")),
            *(f"{100 * r[f'{k} found']:.0f} %, {100 * r[f'{k} accused']:.0f} %" for k in ("H", "TA")),
        ]
        for r in rows
    ]  # fmt: skip
    return f"""
## Colluders among the annotators of real crowds

The tutorial's test: a share of the annotators gives one and the same wrong answer with p_corr = 0.9, else the truth; 2
draws each. H: `dawid-skene` without those that `find_colluders` flags, where half are honest; TA: with one trusted
annotator, the honest one with the most votes. *Accused*: percent of the honest. The tutorial has these as curves
without numbers.

{_table(header, body)}
"""


def ensembles_part(rows: list[dict[str, Any]]) -> str:
    published = {"shuttle": [0.9882, 0.9754, 0.9893, 0.9946], "covertype": [0.75, 0.4846, 0.7449, 0.7409]}
    body = []
    for r in rows:
        body.append([f"like {r['set']}, {r['groups']} groups", *(_number(x) for x in r["accuracy"])])
        body.append([f"{r['set']}, published", *(_number(x) for x in published[r["set"]]), ""])
    header = ["set", "majority", "dawid-skene", "grouped-majority", "grouped-dawid-skene", "`auto`"]
    return f"""
## Groups of classifiers

The sets themselves cannot be had without a network. *Like*: {rows[0]["items"]:,} items that we drew with as many
classes and the same class shares, labelled by 15 classifiers in groups; members of a group are of one kind and learned
from the same 300 items and features. So numbers differ from the published ones: `dawid-skene`
collapses on the second pair as published, and on the first grouping brings nothing.

{_table(header, body)}
"""


def unfair_part(rows: list[dict[str, Any]]) -> str:
    published = {
        ("Random Forest", "majority"): (6.04, 0.06),
        ("Random Forest", "dawid-skene"): (7.63, 0.04),
        ("Random Forest", "learning from crowds"): (7.54, 0.04),
        ("Logistic Regression", "majority"): (2.55, 0.04),
        ("Logistic Regression", "dawid-skene"): (2.77, 0.05),
        ("Logistic Regression", "learning from crowds"): (2.86, 0.05),
    }  # fmt: skip
    body = []
    for r in (row for row in rows if "classifier" in row):
        a, p = published.get((r["classifier"], r["labels"]), (None, None))
        there = ["–", "–"] if a is None else [f"{a:.2f}", f"{p:.2f}"]
        body.append([r["classifier"], r["labels"], f"{r['accuracy']:.2f}", f"{r['parity']:.2f}", *there])
    measures = [[r["of"], *(f"{gap:+.3f}" for gap in r["gaps"])] for r in rows if "of" in r]
    header = ["classifier", "labels", "accuracy lost", "parity gap added", "lost, tutorial", "added, tutorial"]
    return f"""
## Classifiers on labels of a biased crowd

Points of accuracy lost, and demographic parity difference added, by a classifier trained on labels of the crowd
instead of the truth. Ours: 3,000 items drawn with ten features and a sensitive attribute, 5 votes each by 20
annotators who call negatives of one group positive up to 30 points more often. The tutorial's data are others;
`group-conditional`, with the matrices A_m(z) that it asks for, is not in its table, and helps
here no more than `dawid-skene` does.

{_table(header, body, 2)}

The three measures of the tutorial's slide, for the labels and the 20 annotators of the same crowds (the lowest, the
median and the highest of them in each column): the group that is judged too often positive less the other one.

{_table(["of", "accuracy", "false positive rate", "share of positives"], measures)}
"""


def drift_part(rows: list[dict[str, Any]]) -> str:
    header = ["votes each", "change of accuracy", "found", "others flagged"]
    body = [
        [f"{r['votes']}", f"-{r['fall']:.2f}, {r['way']}" if r["fall"] else "none", f"{100 * r['found']:.0f} %",
         f"{100 * r['others']:.1f} %"]
        for r in rows
    ]  # fmt: skip
    return f"""
## Drift

Five of 25 annotators get worse, at once half way (a step) or all the time (a slope); percent of them, and of the 20
others, that `assess_annotators` flags for drift; 10 crowds each, 5 votes per item, `auto`.

{_table(header, body)}
"""


def assignment_part(rows: list[dict[str, Any]]) -> str:
    from crowdwise.active.fair_assignment import TOLERANCE

    how = {"plain": "the strategy alone", "one matrix": "bound, one matrix, no tolerance", "by group": "bound, A_m(z)"}
    case = {
        1: "half of the annotators guess on B and are the best on A",
        2: "two thirds of the annotators guess on B",
    }
    body = []
    for r in rows:
        a, b, c, d = (100 * x for x in r["accuracy"])
        body.append([case[r["case"]], how[r["how"]], *(f"{x:.1f}" for x in (a, b, a - b, c, d, c - d))])
    header = ["planted", "questions by", "dawid-skene: A", "B", "gap", "group-conditional: A", "B", "gap"]
    return f"""
## Fair assignment

600 items in two groups, 24 annotators; three votes per item at random, then three more on average by strategy `value`
in batches of 200, with a bound of .01 on the expected gap and a tolerance of {TOLERANCE:g}; accuracy in %, mean of
{rows[0]["seeds"]} campaigns, of two fits of the same votes.

{_table(header, body, 2)}

The tolerance was lowered from .005, with which A fell by .8 points in 8 campaigns (`dawid-skene`). A tolerance of .002,
run on the same 16 campaigns afterwards, left a gap of 8.2 and 1.5 points and A .6 lower in the second case.

**16 fresh campaigns** (seeds 16 to 31, run once, after the tolerance was chosen), the strategy alone against the bound
with A_m(z): mean, and standard error over campaigns.

| planted | fit | gap alone | gap with the bound | A falls by | at worst |
| --- | --- | ---: | ---: | ---: | ---: |
| half guess on B and are the best on A | dawid-skene | 16.4 ± .8 | 9.2 ± .8 | -.2 ± .2 | 1.0 |
| half guess on B and are the best on A | group-conditional | 15.2 ± .8 | 7.2 ± .7 | .1 ± .2 | 1.3 |
| two thirds guess on B | dawid-skene | 5.2 ± .8 | 1.1 ± .4 | -.0 ± .3 | 1.7 |
| two thirds guess on B | group-conditional | 5.4 ± .7 | 1.2 ± .4 | .0 ± .3 | 1.7 |

A falls by no more than half a point on average, in single campaigns by up to 1.7. The gap halves in three of the four
rows; with `dawid-skene`, whose one matrix cannot hold annotators who guess on B alone, it falls by 44 %.
"""


def blind_part(rows: list[dict[str, Any]]) -> str:
    header = ["misled items", "true gap", "blind: estimate", "width", "covered", "`hidden=0`: width", "covered"]
    header += ["a third with truth: estimate", "width", "covered"]
    body = [
        [
            f"{100 * r['misled']:.0f} %", _number(r["true"], 2), _number(r["blind gap"], 2),
            _number(r["blind width"], 2), f"{100 * r['blind covered']:.0f} %", _number(r["naive width"], 2),
            f"{100 * r['naive covered']:.0f} %",
            _number(r["gold gap"], 2), _number(r["gold width"], 2), f"{100 * r['gold covered']:.0f} %",
        ]
        for r in rows
    ]  # fmt: skip
    return f"""
## Fairness gaps with and without truth

Equalised odds of `dawid-skene`'s labels of 600 items, 5 votes each; negatives of one group are called positive 20
points more often, and a share of its items looks to everybody like the other class; 40 crowds each. *Covered*: how
often the 95 % interval has the gap of these items by their truth.

{_table(header, body)}
"""


def corrections_part(found: dict[str, Any]) -> str:
    body = [[r["labels"], f"{100 * r['accuracy']:.1f}", _number(r["gap"])] for r in found["simulated"]]
    names = ("as they are", "alike", "as they are labels", "alike labels")
    alike = [
        [
            f"{r['attribute']}: {r['groups'][0]}, {r['groups'][1]}", ", ".join(f"{v:,}" for v in r["votes"]),
            *(", ".join(_number(x) for x in r[name]) for name in names),
        ]
        for r in found["toxicity"]
    ]  # fmt: skip
    return f"""
## Thresholds and re-weighting

Crowds as above with 5 % of one group's items misled, 1,500 items; thresholds for equalised odds within .05, chosen
under the posterior or on the third of the items with truth; both columns on the other items, mean of 20 crowds.

{_table(["labels", "accuracy", "gap"], body)}

`toxicity_demographics` has no truth, but 545 people of known groups on 120 comments. Votes as they are, and weighted so
that two groups count alike on every comment: mean distance between the share of "toxic" votes and that of each group
alone, and how often the majority label is that of each group.

{_table(["annotators", "votes", "distance", "distance, alike", "same label", "same label, alike"], alike, 1)}
"""


SECTIONS = {
    "real": real_part,
    "spammers": spammers_part,
    "colluders": colluders_part,
    "groups": groups_part,
    "bluebird": bluebird_part,
    "alarms": alarms_part,
    "accuracy": accuracy_part,
    "agreement": agreement_part,
    "few": few_part,
    "rings": rings_part,
    "effect": effect_part,
    "attacked": attacked_part,
    "ensembles": ensembles_part,
    "drift": drift_part,
    "unfair": unfair_part,
    "blind": blind_part,
    "corrections": corrections_part,
    "assignment": assignment_part,
}


def write(found: dict[str, Any], page: Path) -> None:
    """The page, from the parts that have been measured."""
    parts = [section(found[name]) for name, section in SECTIONS.items() if name in found]
    page.write_text(HEAD + "".join(parts), encoding="utf-8")
