"""An assignment's cases, visible and hidden, and what a criterion says of an answer.

Here the bench has no sandbox, and stops at the first case that is not passed.
"""

import re

import nbformat
from course import FULL, solution, starter

from classroom.grading import bench, judge


class Assignment:
    """An assignment's notebook, its one source.

    Args:
        module: its module in `classroom.grading`.
    """

    def __init__(self, module):
        self.module = module
        self.name = module.__name__.rpartition(".")[2]
        self.solution, self.starter = solution(self.name), starter(self.name)
        self.visible, self.hidden, self.points = {}, {}, {}
        path = judge.notebook("source", self.name)
        for cell in nbformat.read(path, as_version=4).cells:
            graded = cell.metadata.get("nbgrader", {})
            if graded.get("grade"):
                self._read_cases(cell.source, graded)

    def _read_cases(self, source: str, graded: dict) -> None:
        begin, end = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
        shown = re.sub(f"{begin}.*?{end}", "", source, flags=re.DOTALL)
        found = []

        def check(criterion, *cases):
            assert criterion == graded["grade_id"]
            found.append(list(cases))

        for text in (shown, source):
            exec(text, {"check": check})
        visible, every = found
        name = graded["grade_id"]
        self.visible[name], self.points[name] = visible, graded["points"]
        self.hidden[name] = [case for case in every if case not in visible]

    def mistaken(self, changes: list[tuple[str, str]]) -> dict[str, str]:
        """Return the solution with each `old` replaced by its `new`."""
        programs = dict(self.solution)
        for old, new in changes:
            (file,) = (name for name, text in programs.items() if old in text)
            assert programs[file].count(old) == 1, old
            programs[file] = programs[file].replace(old, new)
        return programs

    def judge(self, programs: dict[str, str], criterion: str, cases: list[dict]):
        """Return the verdicts of the first cases, up to one that is not passed."""
        desk, verdicts = bench.Bench(programs), []
        for case in cases:
            verdicts.append(bench.try_case(self.module, criterion, desk, case))
            if verdicts[-1].state != "pass":
                break
        return verdicts

    def lost(self, programs: dict[str, str], suspect: str) -> dict[str, str]:
        """Return what each criterion that is not passed says.

        The criterion `suspect` is tried with all cases, any other with its first one;
        of those only the dearest one, unless everything is to be tried.
        """
        said, dearest = {}, max(self.points, key=self.points.get)
        for criterion in self.module.CRITERIA:
            if not FULL and criterion not in (suspect, dearest):
                continue
            cases = self.visible[criterion] + self.hidden[criterion]
            cases = cases if criterion == suspect else cases[:1]
            verdict = self.judge(programs, criterion, cases)[-1]
            if verdict.state != "pass":
                said[criterion] = str(verdict)
        return said
