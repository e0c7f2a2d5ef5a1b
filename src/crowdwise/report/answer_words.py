"""What the tables of other answer types are called in a report, and what their columns mean."""

from __future__ import annotations

TITLES = {
    "leaderboard": "Leaderboard", "items": "Items", "clusters": "Clusters", "labels": "Labels", "spans": "Spans",
    "annotators": "Annotators",
}  # fmt: skip
TABLES = {
    "leaderboard": "The best first. The dot is the score, the band its 95% CI.",
    "items": "The least sure first.",
    "clusters": "What the items fell into.",
    "labels": "How often each label is in a set, and how well the crowd recognises it.",
    "spans": "The least sure first.",
    "annotators": "Those to look at first: the least exact, or the least in agreement with what was found.",
}
"""The tables that are shown, in this order, and what stands above them."""
NAMES = ("item", "annotator", "label", "cluster", "sequence", "type", "partner", "group", "component")
"""Columns that hold names, even where these are numbers."""
ITEMS_BY = (("probability", 1.0), ("deviation", -1.0))
ANNOTATORS_BY = (("reliability", 1.0), ("accuracy", 1.0), ("noise", -1.0), ("agreement", 1.0))
"""Columns by which rows are ordered, the first that is there; 1 for the smallest first."""
SHARES = {
    "probability", "agreement", "accuracy", "reliability", "sensitivity", "specificity", "tie_rate", "first_rate",
    "share", "cohesion",
}  # fmt: skip
"""Columns that lie between 0 and 1."""
SIGNED = {"bias", "position", "location"}
"""Columns in which 0 means no bias."""
WORDS = {
    "value": "the estimated true value",
    "deviation": "its standard deviation",
    "bias": "how much more than the truth an annotator says, on average",
    "scale": "how much an annotator's ratings move when the truth moves by one",
    "precision": "one over the variance of an annotator's noise",
    "noise": "how far an annotator's ratings scatter around what they mean to say (a standard deviation)",
    "partner": "with whom an annotator's errors go together",
    "rank": "the place, 1 the best; behind it the places that are possible (95% CI)",
    "score": "log-odds: an item one point above another is preferred in 73% of the decided answers",
    "error": "the standard error of the score",
    "reliability": "how often an annotator answers as the scores say and not the other way round; under one half they "
    "reverse the order",
    "position": "by how much (log-odds) the first of two is preferred whatever it is",
    "first_rate": "how often the first of two was chosen",
    "tie_rate": "how often it was a tie",
    "group": "the group of like-minded annotators",
    "component": "items of different components were never compared, directly or by way of others",
    "cluster": "the cluster of an item",
    "cohesion": "how surely the items of a cluster belong to it, on average",
    "sensitivity": "how often what is there is said: two of a kind found the same, a label in the set chosen",
    "specificity": "how often what is not there is not said: two kinds distinguished, any other label left out",
    "probability": "how sure that is, under the model",
    "entropy": "how unsure it is, in bits",
    "size": "how many labels are in the set",
    "agreement": "how often an annotator said what was found (their own answers had a part in it)",
    "accuracy": "how often an annotator is right, under the model",
    "labels_per_answer": "how many labels an annotator chooses at a time",
    "item": "the name of the item",
    "annotator": "the name of the annotator",
    "label": "the label",
    "labels": "the labels of the set",
    "type": "the type of the span",
    "sequence": "the sequence it stands in",
    "token": "which token of the sequence, counted from 0",
    "start": "its first token, counted from 0",
    "end": "the token after its last one",
    "items": "how many items",
    "answers": "how many answers",
    "votes": "how many answers",
    "ratings": "how many ratings",
    "comparisons": "how many comparisons",
    "rankings": "how many rankings",
    "wins": "how often it was preferred",
    "losses": "how often the other was preferred",
    "ties": "how often neither was preferred",
    "first": "how often it was ranked first",
    "last": "how often it was ranked last",
    "share": "the share of all items",
}
"""What a column means."""
PLAIN = {
    "item", "annotator", "label", "labels", "type", "sequence", "start", "end", "items", "answers", "votes", "ratings",
    "comparisons", "rankings", "wins", "losses", "ties", "first", "last", "share", "cluster",
}  # fmt: skip
"""Columns whose heading says what they are: a tooltip suffices."""
HEADINGS = {"tie_rate": "Ties", "first_rate": "First chosen", "labels_per_answer": "Labels", "deviation": "Deviation"}
UNITS = {
    "score": "log-odds", "error": "log-odds", "position": "log-odds", "entropy": "bits", "rank": "place",
    "labels_per_answer": "per answer", "scale": "per step", "precision": "1/variance", "value": "on the scale",
    "token": "place", "start": "token", "end": "token",
    "deviation": "on the scale", "bias": "on the scale", "noise": "on the scale", "size": "labels",
}  # fmt: skip


def tip(name: str) -> str:
    """The tooltip of a heading."""
    if name.startswith("p("):
        return f"The probability of {name[2:-1]}"
    said = WORDS.get(name, name.replace("_", " "))
    return said[:1].upper() + said[1:]


def unit(name: str) -> str:
    """What the numbers of a column are."""
    return UNITS.get(name) or ("%" if name in SHARES else "0 to 1" if name.startswith("p(") else "count")
