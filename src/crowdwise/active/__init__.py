"""Who should label what next.

==================  ================================================================================
``beliefs``         what is known at a moment: items, annotators, prices, who has seen what
``select``          scores of items, of annotators, and of pairs of them
``assign``          the best batch of pairs under constraints
``strategy``        rules with names, made of the above
``fair``            the same under a bound on the gap of errors between groups of items
``stop``            when an item, or a campaign, needs no more votes
``journal``         the book of a campaign, which survives anything
``campaign``        a folder in which labels are asked for and come in
``replay``          a strategy at work on votes that are there already
``plan``            how many items and how many votes on each, for a budget
``curves``          pictures of the last two
==================  ================================================================================
"""
