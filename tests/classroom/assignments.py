"""What the assignments' tests share: an assignment's programs, cases and verdicts."""

import re

import nbformat

from classroom.grading import bench
from ddp_lab.kit import ROOT

STUB = 'raise NotImplementedError("your code")'


class Assignment:
    """An assignment's notebook, its one source.

    Args:
        module: its module in `classroom.grading`.
    """

    def __init__(self, module):
        self.module = module
        self.name = module.__name__.rpartition(".")[2]
        path = ROOT / "classroom" / "source" / self.name / f"{self.name}.ipynb"
        self.notebook = nbformat.read(path, as_version=4)
        self.solution, self.visible, self.hidden, self.points = {}, {}, {}, {}
        for cell in self.notebook.cells:
            graded = cell.metadata.get("nbgrader", {})
            if graded.get("solution"):
                file = module.PROGRAMS[graded["grade_id"]]
                self.solution[file] = cell.source.partition("\n")[2] + "\n"
            elif graded.get("grade"):
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

    def starter(self) -> dict[str, str]:
        """Return the programs as a student gets them."""
        gap = re.compile(r"( *)### BEGIN SOLUTION\n.*?### END SOLUTION", re.DOTALL)
        return {
            file: gap.sub(lambda match: match[1] + STUB, text)
            for file, text in self.solution.items()
        }

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

        The criterion `suspect` is tried with all cases, any other with its first one.
        """
        said = {}
        for criterion in self.module.CRITERIA:
            cases = self.visible[criterion] + self.hidden[criterion]
            cases = cases if criterion == suspect else cases[:1]
            verdict = self.judge(programs, criterion, cases)[-1]
            if verdict.state != "pass":
                said[criterion] = str(verdict)
        return said
