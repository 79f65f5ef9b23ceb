"""A folder for each assignment. What every folder provides: engine/assignment.py."""

from classroom.engine.assignment import COURSE

# What the course has of its own goes before what is here.
__path__.insert(0, str(COURSE / "assignments"))
