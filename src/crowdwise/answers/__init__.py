"""Answers beyond classes: numbers, grades, comparisons, rankings, same or different, label sets, tags, linked items.

Every kind of answers has its table in :mod:`crowdwise.data`, its methods here (those with a network in
:mod:`crowdwise.deep`), and a frozen result with intervals.
"""

import crowdwise.methods  # noqa: F401  their names serve as starts: start="cnmf"
