"""Reports: the reliability of annotators, what to look at, and how sure the labels are.

===================  ===========================================================================================
``findings``         runs what ``crowdwise.trust`` has, once; findings and a verdict on every annotator: ``diagnose``
``build``            answers and a result -> one plain dict that JSON can hold: ``build_report``
``votes``            the parts of that dict for votes, a section after the other
``other_answers``    those for other answer types
``page``             the dict -> one HTML page that needs nothing else: ``write_report``
===================  ===========================================================================================
"""
