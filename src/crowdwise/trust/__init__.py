"""Whom to believe, and where to look again.

Everything here is handed votes and a consensus, and looks at the truth only where that is handed over too.

==================  ================================================================================
``agreement``       percent, Cohen, Scott, Fleiss, Krippendorff, Gwet, intraclass correlation
``spammers``        annotators who answer whatever the item is
``colluders``       annotators who repeat each other's mistakes
``groups``          annotators who depend on one another
``annotators``      a table with intervals and flags in words
``items``           what to look at again, and which classes are taken for one another
``fairness``        error rates by an attribute of items; ``thresholds`` that keep gaps small
``demographics``    which groups of annotators label differently
``compare``         methods side by side without any truth; ``checks``: what a consensus does not explain
==================  ================================================================================

The mathematics behind them: ``tables``, ``coefficients``, ``correlations``, ``pairs`` and ``bootstrap`` (agreement),
``capacity``, ``covariance`` and ``clusters`` (spammers), ``rings`` and ``mistakes`` (colluders), ``measures`` and
``times`` (annotators), ``evidence`` (all).
"""
