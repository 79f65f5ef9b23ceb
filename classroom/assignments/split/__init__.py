"""Assignment 4, Split: a pipeline over ranks with micro-batches."""

from classroom.assignments.split import criteria
from classroom.engine.check import make_check

check = make_check(criteria)
