"""What is particular to each answer type, one module per type: agreement, measures, findings, and its part of a report.

``registry.ANSWER_TYPES`` names the class of each; everything that goes by the answer type asks it. ``base`` has what
types share, and what a new type may leave out.
"""
