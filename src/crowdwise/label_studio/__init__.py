"""A Label Studio server: annotations in, consensus back as predictions, and what to label next.

``ls_client`` speaks HTTP, ``ls_project`` knows what the server calls things and holds what was pulled,
``ls_round`` is one round (pull, fit, push, next), ``ls_watch`` repeats it, and ``ls_backend`` answers as an ML backend.
"""
