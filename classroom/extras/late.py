"""Late days: how long one may be late for free, and what it costs afterwards.

nbgrader knows due dates, extensions and, from timestamp.txt, when something was handed
in. The policy is set in nbgrader_config.py:

    c.LateDays.free_days = 4          # of each student, over the whole course
    c.LateDays.percent_per_day = 10   # of the assignment's points, for each further day
    c.LateDays.most_days = 3          # later than that, it has no points
"""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell
from nbgrader.api import Gradebook, SubmittedAssignment
from nbgrader.plugins import LateSubmissionPlugin
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Float, Integer

from classroom.extras import roster

DAY = timedelta(days=1).total_seconds()


@dataclass(frozen=True)
class Lateness:
    """How late something was handed in, and what that costs."""

    days: int
    """Begun ones, after the due date and any extension."""
    free: int = 0
    """How many of them have cost a late day and no points."""
    penalty: float = 0.0
    """Points."""

    def __str__(self) -> str:
        text = f"Handed in {_days(self.days)} late"
        if self.free:
            text += f", of which {self.free} free"
        cost = f"−{self.penalty:g} points" if self.penalty else "no penalty"
        return f"{text}: {cost}."


class LateDays(LateSubmissionPlugin):
    """The policy, as nbgrader's AssignLatePenalties calls it.

    A student's free days go to what was due first.
    """

    free_days = Integer(0, help="late days of a student, over the course").tag(
        config=True
    )
    percent_per_day = Float(
        0.0, help="of the assignment's points, for each late day that is not free"
    ).tag(config=True)
    most_days = Integer(
        None, allow_none=True, help="what is later than that has no points"
    ).tag(config=True)

    def late_submission_penalty(
        self, student_id: str, score: float, total_seconds_late: float
    ) -> float:
        """Return the points that the submission loses which is being graded."""
        found = self.lateness(self.parent.gradebook, student_id)
        return found[self.parent.assignment_id].penalty

    def lateness(self, gradebook: Gradebook, student: str) -> dict[str, Lateness]:
        """Return, by assignment, what a student has handed in late."""
        found, left = {}, self.free_days
        late = [s for s in gradebook.student_submissions(student) if _is_late(s)]
        for submission in sorted(late, key=_due):
            days = math.ceil(submission.total_seconds_late / DAY)
            if self.most_days is not None and days > self.most_days:
                lateness = Lateness(days, 0, submission.score)
            else:
                free = min(days, left)
                left -= free
                part = self.percent_per_day / 100 * (days - free)
                penalty = min(part * submission.max_score, submission.score)
                lateness = Lateness(days, free, round(penalty, 3))
            found[submission.assignment.name] = lateness
        return found

    def settle(self, gradebook: Gradebook) -> None:
        """Work out all penalties anew.

        One may have changed with another submission, an extension, or a grade given by
        hand, all of which come after the grading.
        """
        for student in gradebook.students:
            found = self.lateness(gradebook, student.id)
            for submission in gradebook.student_submissions(student.id):
                lateness = found.get(submission.assignment.name)
                for notebook in submission.notebooks:
                    notebook.late_submission_penalty = lateness and lateness.penalty
        gradebook.db.commit()


class Settle(NbGraderPreprocessor):
    """Work out all penalties by the due dates of now, before a page shows one."""

    def preprocess(
        self, nb: NotebookNode, resources: dict
    ) -> tuple[NotebookNode, dict]:
        with Gradebook(resources["nbgrader"]["db_url"]) as gradebook:
            roster.enter_due(gradebook)
            LateDays(parent=self).settle(gradebook)
        return nb, resources


class LateNote(NbGraderPreprocessor):
    """Say in the feedback how late it was, and what that has cost."""

    def preprocess(
        self, nb: NotebookNode, resources: dict
    ) -> tuple[NotebookNode, dict]:
        about = resources["nbgrader"]
        with Gradebook(about["db_url"]) as gradebook:
            found = LateDays(parent=self).lateness(gradebook, about["student"])
        if lateness := found.get(about["assignment"]):
            nb.cells.insert(0, new_markdown_cell(str(lateness)))
        return nb, resources


def _is_late(submission: SubmittedAssignment) -> bool:
    return bool(submission.assignment.duedate) and submission.total_seconds_late > 0


def _due(submission: SubmittedAssignment) -> tuple[datetime, str]:
    return submission.assignment.duedate, submission.assignment.name


def _days(count: int) -> str:
    return f"{count} day{'s' * (count != 1)}"
