"""Which column of a table plays which part, whatever people call it.

What a column holds, going by its values: the answers of an annotator, or something else (texts, notes, times, ids).

A wide table has a column for each annotator, and often more beside them. Answers repeat and are shared between
annotators; texts, times and ids are different in nearly every row, and no other annotator uses them. Names help where
values do not decide: no annotator is called ``comments`` or ``created_at``."""

from __future__ import annotations

import ast
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from crowdwise.data.heavy import pl
from crowdwise.errors import ColumnError, Option, Remedy, listing, suggestion


def bare(text: str) -> str:
    """Small letters without accents, which capitals often lack: ``Elément`` is ``élément``.

    >>> bare("Elément") == bare("Élément") == "element"
    True
    """
    text = text.lower()
    return text if text.isascii() else unicodedata.normalize("NFC", ACCENTS.sub("", unicodedata.normalize("NFD", text)))


ACCENTS = re.compile("[\u0300-\u036f]")
NAMES: dict[str, frozenset[str]] = {
    what: frozenset(map(bare, names.split(", ")))
    for what, names in {
        "question":
            "question, task question, question text, question key, variable, dimension, aspect, criterion, attribute, "
            "field, frage, merkmal, kriterium, aspekt, critère, pregunta, criterio, pergunta, critério, 问题, 维度",
        "comment":
            "comment, comments, note, notes, remark, remarks, kommentar, kommentare, anmerkung, anmerkungen, "
            "bemerkung, bemerkungen, notiz, notizen, hinweis, hinweise, begründung, commentaire, commentaires, "
            "remarque, remarques, justification, comentario, comentarios, nota, notas, observación, observaciones, "
            "comentário, comentários, observação, observações, 备注, 评论, 注释, 说明, 评语",
        "total":
            "total, totals, sum, average, avg, mean, median, count, summe, gesamt, insgesamt, mittelwert, "
            "durchschnitt, anzahl, somme, moyenne, suma, promedio, soma, média, 合计, 总计, 平均",
        "certainty":
            "confidence, conf, certainty, sure, probability, prob, logprob, difficulty, minutes, reason, rationale, "
            "explanation, sicherheit, konfidenz, confiance, confianza, confiança, certeza, dauer, zeit",
        "detail":
            "text, url, link, date, time, timestamp, duration, seconds, uuid, hash, id, path, file, filename, email",
        "other":
            "texts, feedback, description, title, body, content, message, texte, texto, 文本, datum, fecha, data, "
            "日期, 时间, datetime, created, updated, created at, updated at, submitted at, started at, finished at, "
            "completed at, lead time, work time, guid, index, row, ip address, sd, std, stdev, agreement, kappa, "
            "votes, n votes",
        "mail":
            "email, e mail, mail, email address, e mail address, e mail adresse, username, benutzername, adresse e "
            "mail, nom d'utilisateur, correo electrónico, dirección de correo electrónico, endereço de e mail, "
            "电子邮件, 电子邮件地址, 用户名",
        "id": "id, ids, uuid, guid, hash, key",
        "verdict":
            "final, consensus, gold, adjudicated, adjudication, adjudicator, majority, resolved, truth, endgültig, "
            "endergebnis, ergebnis, konsens, konsensus, mehrheit, entscheid, endurteil, finale, définitif, "
            "définitive, consenso, majorité, adjugé, definitivo, definitiva, mayoría, adjudicado, maioria, 最终, 共识, "
            "多数, 仲裁, 定稿, 最终标签, 最终答案, 最终结果, 共识标签, 黄金标准",
        "around a verdict": "vote, decision, entscheidung, decisão, result, code, standard, the, mv",
    }.items()
}  # fmt: skip
"""What the names of columns say that hold no answers of an annotator.

====================  =================================================================================================
``question``          the whole name: which of several questions a row answers
``verdict``           every word, with those around it: the answer that was agreed on, or decided, afterwards
``id``                the last word: numbers of rows
``mail``              the whole name: how forms call the column of who answered
``comment``           the whole name, or the last word, which is a hint: values decide
``detail``            the same: texts, addresses, times
``certainty``         the whole name, or a word beside the name of an annotator: ``Anna``, ``Anna confidence``
``total``             the whole name, or the first word; of rows the whole name
``other``             the whole name
====================  =================================================================================================
"""
LAST_WORDS = NAMES["comment"] | NAMES["detail"] | {"at", "on"}
SAME = ("same", "yes", "y", "true", "t", "1", "1.0", "similar", "match", "must-link", "must link")
DIFFERENT = ("different", "no", "n", "false", "f", "0", "0.0", "dissimilar", "mismatch", "cannot-link", "cannot link")
"""The words for the two answers about similarity; case does not matter."""
ALIASES: dict[str, tuple[str, ...]] = {
    part: tuple(dict.fromkeys(map(bare, names.split(", "))))
    for part, names in {
        "item":
            "item, task, unit, example, instance, sample, document, doc, image, object, microtask, question, file, "
            "filename, stimulus, "
            "objekt, element, aufgabe, beispiel, dokument, bild, einheit, tâche, exemple, unité, objet, elemento, "
            "tarea, ejemplo, unidad, objeto, documento, imagen, tarefa, exemplo, unidade, imagem, 样本, 条目, "
            "项目, 任务, 题目, 图片, 文档, 编号",
        "annotator":
            "annotator, worker, rater, user, coder, labeler, labeller, judge, expert, reviewer, assessor, performer, "
            "participant, prolific pid, annotated by, labeled by, labelled by, completed by, kodierer, codierer, "
            "bewerter, annotierer, nutzer, benutzer, teilnehmer, gutachter, "
            "annotateur, codeur, évaluateur, juge, utilisateur, anotador, codificador, evaluador, juez, usuario, "
            "participante, trabajador, avaliador, juiz, usuário, utilizador, 标注员, 标注者, 标注人, 评审员, "
            "工人, 用户",
        "label":
            "label, answer, response, rating, class, category, vote, choice, judgment, judgement, annotation, value, "
            "kategorie, klasse, antwort, bewertung, urteil, stimme, etikett, étiquette, réponse, catégorie, classe, "
            "choix, etiqueta, respuesta, categoría, clase, elección, voto, rótulo, resposta, categoria, escolha, 标签, "
            "标注, 类别, 答案, 回答, 选择",
        "value":
            "value, rating, score, number, estimate, measurement, grade, label, answer, response, judgment, "
            "judgement, annotation, wert, bewertung, punktzahl, punkte, valeur, évaluation, valor, puntuación, "
            "pontuação, nota, 评分, 分数, 数值",
        "item_a":
            "item a, item 1, item1, first item, item left, left item, task a, task 1, object a, object 1, image a, "
            "image 1, a, left, first, id a, id 1, i",
        "item_b":
            "item b, item 2, item2, second item, item right, right item, task b, task 2, object b, object 2, image b, "
            "image 2, b, right, second, id b, id 2, j",
        "same":
            "same, similar, is same, same class, same cluster, same group, same kind, match, is match, duplicate, is "
            "duplicate, must link, linked",
        "labels": "labels, label set, labelset, chosen, chosen labels, categories",
        "offered": "offered, offered labels, options, candidates",
        "x1": "x1, x min, xmin, left",
        "y1": "y1, y min, ymin, top",
        "x2": "x2, x max, xmax, right",
        "y2": "y2, y max, ymax, bottom",
        "z1": "z1, z min, zmin",
        "z2": "z2, z max, zmax",
        "width": "width, box width, bbox width, w",
        "height": "height, box height, bbox height, h",
        "x": "x",
        "y": "y",
        "z": "z",
        "weight": "weight, gewicht, poids, peso, 权重",
        "timestamp":
            "timestamp, created at, submitted at, annotated at, zeitstempel, zeitpunkt, horodatage, marca de tiempo, "
            "carimbo de data, 时间戳",
        "sequence": "sequence, sentence, sent, document, doc, paragraph, utterance",
        "position": "position, token, index, token index, token position, offset",
        "word": "word, form, surface, token text, text",
        "text":
            "text, transcription, transcript, translation, correction, caption, summary, output, label, answer, "
            "response, annotation",
        "mask": "mask, segmentation, rle, counts, mask path, mask file, annotation",
        "category": "category, class",
        "start": "start, begin, start offset, offset start, start char, char start, start token, token start",
        "end": "end, stop, end offset, offset end, end char, char end, end token, token end",
        "length": "length, text length, document length",
        "tag": "tag, bio, iob, label, annotation, answer, class",
        "source": "source, from, left, head",
        "target": "target, to, right, tail",
        "n_options": "n options, number of options, n choices, number of choices",
        "truth":
            "truth, gold, true label, gold label, ground truth, true class, gt, gold standard, goldstandard, wahrheit, "
            "vérité, verdad, verdade, 真值, 真实标签",
        "left": "left, item a, model a, option a, response a, answer a, item 1, item1, model 1, first, a",
        "right": "right, item b, model b, option b, response b, answer b, item 2, item2, model 2, second, b",
        "outcome":
            "outcome, winner, preferred, preference, verdict, result, label, choice, judgment, judgement, vote, "
            "answer",
        "left_length":
            "left length, length a, length left, length 1, first length, left tokens, tokens a, left words, words a, "
            "left chars, chars a, len a",
        "right_length":
            "right length, length b, length right, length 2, second length, right tokens, tokens b, right words, "
            "words b, right chars, chars b, len b",
        "left_probability":
            "left probability, probability a, probability left, probability 1, prob a, prob left, p a, p left",
        "right_probability":
            "right probability, probability b, probability right, probability 2, prob b, prob right, p b, p right",
        "left_logprob": "left logprob, logprob a, log prob a, logprob left, logprob 1",
        "right_logprob": "right logprob, logprob b, log prob b, logprob right, logprob 2",
        "probability": "probability, prob",
        "anony": "anony",
        "chosen": "chosen, winning item, better, chosen model, winner model, winning model",
        "rejected": "rejected, loser, losing item, worse, rejected model, loser model, losing model",
        "question": "question, prompt, context, instruction, topic, group, ballot",
        "rank": "rank, place, position, order, ranking",
    }.items()
}  # fmt: skip
"""What readers accept for each part, the preferred word first.

Case, accents, ``_``, ``-`` and a trailing ``id`` do not matter.
"""


def normal(name: str) -> str:
    """``Worker_ID`` -> ``worker``: the form in which column names are compared."""
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", str(name))
    words = bare(re.sub(r"[\s_\-.]+", " ", words).strip())
    return re.sub(r"( (id|ids|name)|(?<=[a-z]{2})ids?|(?<=[\u4e00-\u9fff])(编号|id))$", "", words)


def find(columns: Sequence[str], part: str) -> str | None:
    """The column that plays a part, going by the aliases; ``None`` where there is none."""
    by_name: dict[str, list[str]] = {}
    for column in columns:
        by_name.setdefault(normal(column), []).append(column)
    for alias in ALIASES.get(part, (part,)):
        matches = by_name.get(alias, [])
        if len(matches) > 1:
            which = Remedy("Say which: {}.", Option(part, matches[0]))
            raise ColumnError(f"Columns {listing(matches)} could both be the {part}.", remedy=which)
        if matches:
            return matches[0]
    return None


def resolve(columns: Sequence[str], given: Mapping[str, str | None]) -> dict[str, str | None]:
    """Part -> column: what the caller named (checked), else what the aliases find, never one column twice."""
    for part, column in given.items():
        if column is not None and column not in columns:
            near = suggestion(column, list(columns))
            raise ColumnError(
                f"There is no column {column!r} for the {part}: the table has {listing(columns, 12)}.{near}"
            )
    named = [c for c in given.values() if c is not None]
    twice = [c for c in named if named.count(c) > 1]
    if twice:
        parts = [part for part, column in given.items() if column == twice[0]]
        raise ColumnError(
            f"Column {twice[0]!r} is named for the {' and the '.join(parts)}: each part needs a column of its own."
        )
    taken = set(named)
    free = [c for c in columns if c not in taken]
    return {part: column if column is not None else find(free, part) for part, column in given.items()}


def question_column(columns: Sequence[str], parts: Mapping[str, str | None]) -> str | None:
    """The column that says which question a row answers, by its name; it plays no other part."""
    free = [name for name in columns if name not in parts.values()]
    return next((name for name in free if normal(name) in NAMES["question"]), None)


def is_known(names: Iterable[str]) -> bool:
    """Whether some name is one that readers know for a part."""
    known = {word for words in ALIASES.values() for word in words}
    return any(normal(name) in known for name in names)


HEADER_ROWS = 30
"""Rows at the beginning of a table that are looked at for the names of its columns."""


def header_at(rows: Sequence[Sequence[Any]]) -> int:
    """Which of the first rows of a table holds the names of its columns: the first below titles, which fill a third of
    the columns at most. The first row, where that is not clear.

    >>> header_at([["Project X", None, None], [None, None, None], ["item", "ann", "bob"], ["a", "x", "y"]])
    2
    >>> header_at([["item", None, None], ["a", "x", "y"], ["b", "x", "y"], ["c", "1", "1"]])
    0
    """
    cells = [[str(cell).strip() for cell in row if cell is not None and str(cell).strip()] for row in rows]
    few = max(1, max(map(len, cells), default=0) // 3)
    at = next((n for n, row in enumerate(cells) if len(row) > few), 0)
    if len(cells[at : at + 1]) and len(cells[at]) == 2 and not _plays(cells[at], "item"):  # a title and its value
        at = next((n for n, row in enumerate(cells) if _plays(row, "item") and _plays(row, "label")), at)
    names = cells[at] if cells else []
    numbers = any(re.fullmatch(r"[+-]?[\d.,]+", name) for name in names)
    titled = any(cells[:at]) and at + 1 < len(cells) and not numbers and len(set(names)) == len(names)
    return at if titled and not any(_plays(row, "item") for row in cells[:at]) else 0


def _plays(names: Iterable[str], part: str) -> bool:
    return any(normal(name) in ALIASES[part] for name in names)


def in_one_row(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The first rows of a table, in which names that stand in two rows, below headings of groups, stand in the second.

    >>> in_one_row([["item", "Team A", None, "Team B"], [None, "ann", "bob", "cid"], ["a", "x", "y", "x"]])
    [[None, 'Team A', None, None], ['item', 'ann', 'bob', 'cid'], ['a', 'x', 'y', 'x']]
    """
    out = [[None if cell is None or not str(cell).strip() else cell for cell in row] for row in rows]
    for n, (row, below) in enumerate(pairwise(out)):
        bare = {k for k, cell in enumerate(row) if cell is None}
        own = {k for k, cell in enumerate(below) if cell is None}
        if len(row) - len(bare) < 2:
            continue  # a title
        names = [cell for cell in below if cell is not None]
        if len(row) == len(below) and bare and 0 in own and not bare & own and len(set(names)) == len(names):
            first = next((k for k in range(len(row)) if k not in own | bare), None)
            out[n + 1] = [row[k] if k in own else cell for k, cell in enumerate(below)]
            out[n] = [cell if k == first else None for k, cell in enumerate(row)]
        break
    return out


def left_over(columns: Sequence[str], parts: Mapping[str, str | None]) -> list[str]:
    """Every column that plays no part: in the wide form, those of annotators."""
    return [c for c in columns if c not in parts.values()]


DISTINCT = 0.9
"""Columns with a larger share of different values may be texts, times or ids."""
SHARED = 0.2
"""Where a larger share of a column's values is used by annotators, it is one of them."""
FEW = 5
"""Rows below which values say nothing."""
ENOUGH = 10
"""Rows from which on a column whose values are used by one annotator each is not an annotator, though they repeat."""


def names_a_verdict(name: str) -> bool:
    """Whether a column is called the answer that was agreed on: ``Final``, ``consensus_label``, ``Konsens``.

    >>> [names_a_verdict(name) for name in ("Final", "gold standard", "Final Anna", "label")]
    [True, True, False, False]
    """
    words = set(words_of(name))
    around = NAMES["around a verdict"].union(ALIASES["label"])
    return bool(words & NAMES["verdict"]) and words <= NAMES["verdict"] | around


def names_totals(name: str) -> bool:
    """Whether a row is called by a word for totals: ``Total:``, ``Moyenne``."""
    return " ".join(words_of(name)) in NAMES["total"]


def names_no_annotator(name: str) -> bool:
    """Whether a column is called what belongs to no annotator: ``created_at``, ``Comments``, ``Total yes``."""
    words = words_of(name)
    kinds = ("comment", "total", "certainty", "detail", "other")
    return any(" ".join(words) in NAMES[kind] for kind in kinds) or not NAMES["total"].isdisjoint(words[:1])


def words_of(name: str) -> list[str]:
    """``annotationId`` -> ``["annotation", "id"]``."""
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", str(name))
    return bare(re.sub(r"[\s_\-.:]+", " ", spaced)).split()


def named_like_an_id(name: str) -> bool:
    """Whether a column is called an id of something: ``annotation_id``, ``responseId``, ``uuid``."""
    return bool(words := words_of(name)) and words[-1] in NAMES["id"]


def nearly_distinct(column: pl.Series, enough: int = FEW) -> bool:
    """Whether nearly every row has a value of its own, of those that have any."""
    filled = column.drop_nulls()
    return len(filled) >= enough and filled.n_unique() >= DISTINCT * len(filled)


def is_row_id(column: pl.Series) -> bool:
    """Whether a column is called an id, and each of at least ``ENOUGH`` rows has one of its own."""
    simple = column.dtype == pl.String or column.dtype.is_integer()
    filled = column.drop_nulls()
    return named_like_an_id(column.name) and simple and len(filled) >= ENOUGH and filled.n_unique() == len(filled)


DELIMITERS = ("|", ";", ",")
"""What may stand between the labels of a cell."""


def joined_by(cells: Iterable[Any]) -> str | None:
    """What stands between the labels of a cell, where some cell holds several and each of them is in another cell too.

    >>> joined_by(["cat", "dog", "cat|dog"]), joined_by(["Rome, GA", "Paris, TX"])
    ('|', None)
    """
    cells = {str(cell) for cell in cells if cell is not None}
    for sign in DELIMITERS:
        if sign == "," and all(re.fullmatch(r"\s*-?\d+(,\d+)?\s*", cell) for cell in cells):
            continue  # numbers
        sets = [{word.strip() for word in cell.split(sign)} for cell in cells]
        count = Counter(word for words in sets for word in words if word)
        if any(len(words) > 1 and all(count[word] > 1 for word in words) for words in sets):
            return sign
    return None


def lists_in(cells: Iterable[Any]) -> list[list[Any]] | None:
    """Cells of text that are all lists, as JSON or Python writes them; an empty one is an empty list. ``None`` where
    one of them is something else, or none is a list.

    >>> lists_in(['["cat", "dog"]', "['cat']", ""])
    [['cat', 'dog'], ['cat'], []]
    >>> lists_in(["cat|dog"]), lists_in(["[sic] cat"])
    (None, None)
    """
    out: list[list[Any]] = []
    any_list = False
    for cell in cells:
        text = cell.strip() if isinstance(cell, str) else ""
        if not text and (cell is None or isinstance(cell, str)):
            out.append([])
            continue
        if not (text[:1] in "[({" and text[-1:] in "])}" and text):
            return None
        try:
            value = json.loads(text)
        except ValueError:
            try:
                value = ast.literal_eval(text)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                return None
        if value and not isinstance(value, (list, tuple, set)):
            return None
        names = sorted(value, key=str) if isinstance(value, set) else list(value)
        if any(not isinstance(name, (str, int)) for name in names):
            return None
        any_list = True
        out.append(names)
    return out if any_list else None


SIGNS = "%$€£¥"
"""Signs that may stand beside all numbers of a column."""


def without_categories(column: pl.Series) -> pl.Series:
    """A categorical column as text; any other as it is."""
    return column.cast(pl.String) if column.dtype in (pl.Categorical, pl.Enum) else column


def as_numbers(column: pl.Series) -> pl.Series:
    """A column as numbers, null where it holds none. Text may have the same sign in every cell (``7%``), and a decimal
    comma (``1,5``), where no number has a point and one shows that the comma is none of thousands (``1,500``)."""
    column = without_categories(column)
    values = column.cast(pl.Float64, strict=False)
    if column.dtype != pl.String or values.null_count() == column.null_count():
        return values
    text = column.str.strip_chars()
    sign = text.str.extract(f"([{SIGNS}])")
    if sign.null_count() == text.null_count() and sign.drop_nulls().n_unique() == 1:
        text = text.str.strip_chars(SIGNS + " ")
        values = text.cast(pl.Float64, strict=False)
    comma, thousands = text.str.contains(r"^[+-]?\d+,\d+$"), text.str.contains(THOUSANDS.format(","))
    pointed = values.is_not_null() & text.str.contains(".", literal=True)
    if bool(pointed.any()) or not bool((comma & ~thousands).any()):
        return values
    return text.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)


THOUSANDS = r"^[+-]?[1-9]\d{{0,2}}[{}]\d{{3}}$"
"""A number whose sign may be one of thousands."""


def numbers_in(values: Iterable[Any]) -> list[float] | None:
    """Values as numbers, text as in :func:`as_numbers`; ``None`` where one is none."""
    values = list(values)
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        if not all(isinstance(value, str) for value in values):
            return None
    numbers = as_numbers(pl.Series(values, dtype=pl.String))
    return None if numbers.null_count() else numbers.to_list()


def no_annotators(
    table: pl.DataFrame, names: Sequence[str], *, numbers: bool = False, one_sided: bool = False
) -> list[str]:
    """Those of some columns of a wide table that hold no answers of an annotator; ``numbers``: answers are numbers;
    ``one_sided``: an annotator may have a label of their own."""
    plain = [n for n in names if not (table[n].dtype.is_temporal() or table[n].dtype.is_nested())]
    odd = {n for n in names if n not in plain and table[n].null_count() < table.height}
    odd |= {n for n in plain if names_no_annotator(n)} | _beside_answers(plain)
    plain = [n for n in plain if n not in odd]
    if numbers:
        return [n for n in names if n in odd | _no_numbers(table, plain)]
    fractions = {n for n in plain if table[n].dtype.is_float() and bool((table[n].drop_nans() % 1 != 0).any())}
    if any(table[n].dtype == pl.String for n in plain):
        odd |= fractions  # beside labels that are words
    plain = [n for n in plain if n not in odd]
    labels = {n: {str(v).strip().casefold() for v in table[n].drop_nulls().unique().to_list()} for n in plain}
    distinct = {n for n in plain if nearly_distinct(table[n])}
    repeated = [n for n in plain if n not in distinct and labels[n]]

    def sharing(left_out: str) -> bool:
        """Whether there are two other columns or more, and each shares a value with another."""
        sets = [labels[n] for n in repeated if n != left_out]
        return len(sets) > 1 and all(any(mine & other for other in sets if other is not mine) for mine in sets)

    for name in plain:
        others = set().union(*(labels[n] for n in repeated if n != name))
        shared = len(labels[name] & others) / max(1, len(labels[name]))
        filled = table.height - table[name].null_count()
        hinted = bool(LAST_WORDS.intersection(words_of(name)[-1:]))
        alone = not one_sided and shared == 0 and filled >= ENOUGH and sharing(name)
        if others and ((name in distinct and shared < SHARED) or (hinted and shared == 0) or alone):
            odd.add(name)
    return [n for n in names if n in odd]


def _beside_answers(names: Sequence[str]) -> set[str]:
    """Columns that say something about the answers in another one.

    >>> sorted(_beside_answers(["Anna", "Anna sure?", "label ben", "time ben", "cem_confidence"]))
    ['Anna sure?', 'time ben']
    """
    split = {name: tuple(word.rstrip("?!") for word in words_of(name)) for name in names}
    answers = {*split.values()}
    answers |= {rest for words in split.values() for word, rest in _ends(words) if word in ALIASES["label"]}
    beside = LAST_WORDS | NAMES["certainty"]
    return {n for n, words in split.items() if any(w in beside and rest in answers for w, rest in _ends(words))}


def _ends(words: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """The last and the first of several words, each with the others."""
    return [(words[-1], words[:-1]), (words[0], words[1:])] if len(words) > 1 else []


NEARLY_EMPTY = 0.05
"""Columns with a smaller share of the answers of the median column are doubted."""
AS_MAJORITY, AS_PEOPLE = 0.98, 0.95
"""A column that agrees with the majority of the others this often is doubted, where none of the others does so more
often than ``AS_PEOPLE``."""
MOST_CELLS = 10**8
"""Cells of columns, items and labels up to which majorities are looked at."""
COMPARED, OTHERS = 20, 3
"""The fewest items with a majority, and the fewest other columns, by which that is said."""


def doubted(table: pl.DataFrame, names: Sequence[str]) -> dict[str, str]:
    """Columns that may be no annotators by what is in them -> why: nearly empty, or the majority of the others."""
    filled = {n: table.height - table[n].null_count() for n in names}
    usual = sorted(filled.values())[len(names) // 2] if names else 0
    out = {
        n: f"{n!r} has {count:,} answer{'s' * (count != 1)}, where half of the columns have {usual:,} or more"
        for n, count in filled.items()
        if 0 < count <= NEARLY_EMPTY * usual
    }
    agreed = _with_majority(table, [n for n in names if n not in out])
    if len(agreed) > OTHERS and min(rate[1] for rate in agreed.values()) >= COMPARED:
        first, *rest = sorted(agreed, key=lambda n: (-agreed[n][0], n))
        if agreed[first][0] >= AS_MAJORITY and agreed[rest[0]][0] <= AS_PEOPLE:
            out[first] = (
                f"{first!r} agrees with the majority of the others on {agreed[first][0]:.0%} of {agreed[first][1]:,} "
                f"items ({rest[0]!r}, the next, on {agreed[rest[0]][0]:.0%}), as a consensus or a gold label does"
            )
    return out


def shared_out(table: pl.DataFrame, names: Sequence[str]) -> float | None:
    """What three columns of numbers or more add up to, where it is the same in each of ``ENOUGH`` rows: they count
    votes for classes, or are shares of classes."""
    if len(names) < 3 or table.height < ENOUGH or any(table[n].dtype.is_nested() for n in names):
        return None
    numbers = [as_numbers(table[n]) for n in names]
    if any(c.null_count() for c in numbers) or all(c.n_unique() == 1 for c in numbers):
        return None
    sums = np.sum([c.to_numpy() for c in numbers], axis=0)
    return float(sums[0]) if np.allclose(sums, sums[0], rtol=0, atol=1e-6) else None


def _with_majority(table: pl.DataFrame, names: Sequence[str]) -> dict[str, tuple[float, int]]:
    """How often each column has the label of the majority of the others (two votes or more, no tie), and on how many
    items; none where there are too many cells to look at."""
    names = [n for n in names if not table[n].dtype.is_nested()]  # lists are not labels, which their reader says
    text = [table[n].cast(pl.String, strict=False) for n in names]
    labels = pl.concat(text).drop_nulls().unique().sort() if text else pl.Series([], dtype=pl.String)
    N, K = table.height, len(labels)
    if N * K * len(names) > MOST_CELLS or K < 2:
        return {}
    codes = np.stack([c.cast(pl.Enum(labels)).to_physical().cast(pl.Int64).fill_null(-1).to_numpy() for c in text], 1)
    rows, columns = np.nonzero(codes >= 0)
    counts = np.bincount(rows * K + codes[rows, columns], minlength=N * K).reshape(N, K)
    out = {}
    for name, code in zip(names, codes.T, strict=True):
        answered = np.flatnonzero(code >= 0)
        others = counts[answered]
        others[np.arange(len(answered)), code[answered]] -= 1
        second, first = np.sort(others, axis=1)[:, -2:].T
        clear = (first > second) & (first > 1)
        same = others.argmax(axis=1) == code[answered]
        out[name] = (float(same[clear].mean()) if clear.any() else 0.0, int(clear.sum()))
    return out


def _no_numbers(table: pl.DataFrame, names: Sequence[str]) -> set[str]:
    """Columns without a single number, where others have some."""

    def none(name: str) -> bool:
        filled = table[name].drop_nulls()
        return len(filled) > 0 and as_numbers(filled).null_count() == len(filled)

    odd = {n for n in names if none(n)}
    return odd if len(odd) < len(names) else set()
