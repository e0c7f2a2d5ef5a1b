"""Text that a spreadsheet would run: cells that begin as formulas do.

A spreadsheet takes a cell of a CSV file that begins with ``=``, ``+``, ``-`` or ``@`` (in some languages also in their
wide forms; or with a tab or a line end before that) for a formula, whoever wrote the name. With an apostrophe before
it, it is text.

>>> safe_cell("=HYPERLINK(...)"), safe_cell("cat"), safe_cell(-1.5)
("'=HYPERLINK(...)", 'cat', -1.5)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

FORMULA = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""The last four are the wide forms, which spreadsheets in some languages take for the others."""


def safe_cell(value: Any) -> Any:
    """A cell that no spreadsheet runs; numbers are as they are."""
    return f"'{value}" if isinstance(value, str) and value[:1] and value[0] in FORMULA else value


def safe_table(table: pl.DataFrame) -> pl.DataFrame:
    """A table whose text, and names of columns, no spreadsheet runs."""
    import polars as pl

    text = pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String)
    safe = pl.when(text.str.contains(f"^[{re.escape(FORMULA)}]")).then("'" + text).otherwise(text)
    return table.with_columns(safe.name.keep()).rename({name: safe_cell(name) for name in table.columns})
