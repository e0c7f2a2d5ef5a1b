"""Other answer types than votes: ratings, ordinal, comparisons, rankings, similarities, label sets, tags, graph.

Every answer type has its table in :mod:`crowdwise.data`, its methods here (those with a network in
:mod:`crowdwise.learners`), and a frozen result with intervals.
"""

import crowdwise.methods  # noqa: F401  their names serve as starts: start="cnmf"
