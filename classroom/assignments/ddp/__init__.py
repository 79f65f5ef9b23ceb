"""Assignment 2, DDP from scratch: buckets, overlap and no_sync."""

from classroom.assignments.ddp import criteria
from classroom.engine.check import make_check

check = make_check(criteria)
