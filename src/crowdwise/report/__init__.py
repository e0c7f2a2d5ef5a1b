"""Reports: the reliability of annotators, what to look at, and how sure the labels are.

===================  ===========================================================================================
``inspection``       runs everything in ``crowdwise.trust`` that the votes allow, once
``findings``         findings and a verdict on every annotator: ``diagnose``
``build``            answers and a result -> one plain dict that JSON can hold: ``build_report``
``votes``            the parts of that dict for votes, made by ``section_annotators``, ``section_groups``...
``other_answers``    those for other answer types (``answer_words``: what their columns mean)
``thumbnails``       small images of items, inside the page
``page``             the dict -> one HTML page that needs nothing else: ``write_report``
===================  ===========================================================================================
"""
