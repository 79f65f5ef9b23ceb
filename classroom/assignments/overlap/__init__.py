"""Assignment 10, Overlap: communication hidden behind computation."""

from classroom.assignments.overlap import criteria
from classroom.engine.check import make_check

check = make_check(criteria)
