"""What an annotation lead opens first: whom to believe, what to look at, and how sure it all is.

==================  ================================================================================
``inspection``      runs everything in ``crowdwise.trust`` that the votes allow, once
``findings``        what that found, in sentences, and a verdict on every annotator: ``diagnose``
``build``           votes and a consensus -> one plain dict that JSON can hold: ``build_report``
``people`` ...      the parts of that dict, one file each (``items``, ``network``, ``fairness``)
``pictures``        small pictures of items, inside the page
``answers``         the same dict for answers beyond classes (``words``: what their columns mean)
``fit``             the part about the method, for both
``page``            the dict -> one HTML page that needs nothing else: ``write_report``
==================  ================================================================================
"""
