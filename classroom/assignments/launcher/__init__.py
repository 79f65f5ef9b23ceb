"""Assignment 7, Launcher: starts ranks, and lets none outlive it."""

from classroom.assignments.launcher import criteria
from classroom.engine.check import make_check

check = make_check(criteria)
