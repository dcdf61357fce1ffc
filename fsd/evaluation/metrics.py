"""How well scores separate members from non-members, each metric with its 95 % interval.

Labels are (N,) with True for members; scores are (N,) float64, and higher means more likely a member.
"""
