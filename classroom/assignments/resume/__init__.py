"""Assignment 3, Resume: a training that goes on after any death."""

from classroom.assignments.resume import criteria
from classroom.engine.check import make_check

check = make_check(criteria)
