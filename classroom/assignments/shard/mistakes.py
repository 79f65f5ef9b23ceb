"""What students get wrong in Shard."""

from classroom.engine.assignment import Mistake

MISTAKES: list[Mistake] = []
