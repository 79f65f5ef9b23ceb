"""Assignment 5, Clinic: six sick programs, to be diagnosed and cured."""

from classroom.assignments.clinic import criteria
from classroom.assignments.clinic.criteria import CAUSES
from classroom.engine.check import make_check

__all__ = ["CAUSES", "check"]

check = make_check(criteria)
