"""Assignment 6, Server: a parameter server whose calls come on many threads."""

from classroom.assignments.server import criteria
from classroom.engine.check import make_check

check = make_check(criteria)
