"""Who should label what next.

==================  ================================================================================
``beliefs``         what is known at a moment: items, annotators, prices, who has seen what
``select``          scores of items, of annotators, and of pairs of them
``assign``          the best batch of pairs under constraints
``strategy``        rules with names, made of the above
==================  ================================================================================
"""
