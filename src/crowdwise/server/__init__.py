"""``crowdwise serve``: campaigns behind HTTP, with a page to label on and a page to watch (extra ``serve``).

Routes (``routes_...``) call ``service``, one object for a process; ``caller`` says who asks and may do what.
"""
