"""crowdwise: labels you can trust from annotators you cannot.

>>> import crowdwise as cw
>>> photo = [("photo", "ann", "cat"), ("photo", "bob", "cat"), ("photo", "cem", "dog")]
>>> votes = cw.Votes.from_records([*photo, ("scan", "ann", "dog"), ("scan", "bob", "dog")])
>>> cw.aggregate(votes, "majority").labels.tolist()
['cat', 'dog']

Names are resolved when they are first used, so that importing crowdwise is quick.
"""

__version__ = "0.1.0"


def _listed() -> dict[str, str]:
    """Name -> module, below ``crowdwise``, as the stub beside this file lists them."""
    names = {}
    with open(f"{__file__.rpartition('.')[0]}.pyi", encoding="utf-8") as stub:
        for words in map(str.split, stub):  # from crowdwise.module import name as name
            if words[:1] == ["from"] and words[1].startswith("crowdwise"):
                names[words[-1]] = words[1].removeprefix("crowdwise").removeprefix(".")
    return names


def _methods() -> dict[str, str]:
    """Name -> module of every method, learner and table of answers with its reader and result, from the registry."""
    from crowdwise.registry import ANSWER_METHODS, ANSWER_TYPES, LEARNERS, METHODS

    names = {entry.class_name: entry.module for part in (METHODS, LEARNERS, ANSWER_METHODS) for entry in part.values()}
    for kind in ANSWER_TYPES.values():
        if kind.package != __name__:
            continue
        names |= {target.partition(":")[2]: target.partition(":")[0] for target in (kind.table, kind.result)}
        if kind.table.startswith(f"data.{kind.prefix}:"):
            names[f"read_{kind.prefix}"] = f"data.{kind.prefix}"
    return names


_LISTED = _listed()
__all__ = sorted({**_LISTED, **_methods()})


def __getattr__(name: str) -> object:
    from importlib import import_module

    where = _LISTED[name] if name in _LISTED else _methods().get(name)
    if where is None:
        raise AttributeError(f"module 'crowdwise' has no attribute {name!r}")
    value = getattr(import_module(f"crowdwise.{where}"), name) if where else import_module(f"crowdwise.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
