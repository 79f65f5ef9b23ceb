"""Assignment 8, Survive: killed again and again, and nobody can tell from its end."""

from classroom.assignments.survive import criteria
from classroom.engine.check import make_check

check = make_check(criteria)
