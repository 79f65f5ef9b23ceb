"""Assignment 11, gpt3d: a small GPT on eight ranks, cut along three dimensions."""

from classroom.assignments.gpt3d import criteria
from classroom.engine.check import make_check

check = make_check(criteria)
