"""Reliability: of annotators, of items, of methods.

Every function takes votes, most a consensus of them as well, and none looks at the truth unless it is handed over.

=====================  ==============================================================================================
``agreement``          all coefficients of agreement that suit some answers (``crowdwise.agreement``)
``alternative_test``   whether a model may replace the annotators (``crowdwise.alternative_test``)
``spammers``           annotators whose answers do not depend on the item
``colluders``          annotators who repeat each other's mistakes
``dependent_groups``   rings, groups of annotators who depend on one another, and what a panel is worth
``annotators``         a table of annotators with intervals and flags
``coverage``           annotators who abstain: coverage, overlap, conflict (``crowdwise.coverage_table``)
``item_review``        items to look at again or to label by hand, and classes that are taken for one another
``certificate``        the labels of which a share is proven to be right, by random gold labels (``crowdwise.certify``)
``estimates``          shares, means, differences and coefficients with intervals (``crowdwise.estimate``)
``fairness``           error rates by an attribute of items; ``fair_thresholds`` that keep gaps small
``demographics``       which groups of annotators label differently
``method_comparison``  methods side by side without any truth; ``posterior_checks``: what a consensus does not explain
=====================  ==============================================================================================
"""

from __future__ import annotations

from crowdwise.core.lazy import lazily

_WHERE: dict[str, tuple[str, ...]] = {
    "agreement": (),
    "agreement_coefficients": (
        "percent_agreement", "fleiss_kappa", "gwet_ac1", "gwet_ac2", "icc", "krippendorff_alpha",
    ),
    "agreement_pairs": ("PairwiseAgreement", "cohen_kappa", "light_kappa", "pairwise_agreement", "scott_pi"),
    "alternative_test": ("AlternativeTest", "alternative_test"),
    "annotators": ("AnnotatorReport", "assess_annotators", "coverage_table"),
    "certificate": ("Certificate", "certify", "draw_for_gold", "gold_to_prove"),
    "colluders": ("SharedMistakes", "shared_mistakes"),
    "demographics": ("DemographicReport", "compare_demographics"),
    "dependent_groups": (
        "Colluders", "DependentGroups", "EffectiveVotes", "effective_votes", "find_colluders", "find_groups",
    ),
    "estimates": ("PopulationEstimates",),
    "fair_thresholds": ("Thresholds", "choose_thresholds"),
    "fairness": ("FairnessReport", "assess_fairness"),
    "item_review": ("ClassPair", "GoldItems", "ItemReport", "ask_for_gold", "assess_items"),
    "method_comparison": ("Comparison", "compare"),
    "posterior_checks": ("predictive_checks",),
    "spammers": (
        "Spammers", "capacity_spammers", "channel_capacity", "covariance_spammers", "raykar_yu_score",
        "raykar_yu_spammers",
    ),
}  # fmt: skip
__all__, __getattr__, __dir__ = lazily(__name__, _WHERE)
