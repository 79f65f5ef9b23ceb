"""How nbgrader runs this course: the same for `make`, `nbgrader` and the formgrader."""

import sys
from pathlib import Path

# For what `classroom` and `ddp_lab` hold.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nbconvert.preprocessors import (  # noqa: E402
    ClearMetadataPreprocessor,
    CSSHTMLHeaderPreprocessor,
)
from nbgrader.converters import GenerateAssignment  # noqa: E402
from nbgrader.preprocessors import (  # noqa: E402
    AssignLatePenalties,
    CheckCellMetadata,
    GetGrades,
    LimitOutput,
)

from classroom.engine.assignment import COURSE  # noqa: E402
from classroom.engine.preprocessors import (  # noqa: E402
    ClearOurHiddenTests,
    Conditions,
    Judge,
    Page,
    SaveGrades,
)

c = get_config()  # type: ignore[name-defined]  # noqa: F821  (nbgrader has it)
c.CourseDirectory.root = str(COURSE)
c.CourseDirectory.course_id = "ddp-lab"
c.CourseDirectory.db_url = f"sqlite:///{COURSE / 'gradebook.db'}"
# On a box that students share: a folder that all of them may write to.
c.Exchange.root = str(COURSE / "exchange")
# What Canvas calls a file: doejane_LATE_42_9876_ring-1.ipynb, of student 42.
c.FileNameCollectorPlugin.named_regexp = (
    r".*?_(LATE_)?(?P<student_id>\d+)_\d+_(?P<file_id>[a-z0-9]+)"
)
c.ClearSolutions.code_stub = {"python": "### YOUR CODE\nraise NotImplementedError"}
c.GenerateAssignment.preprocessors = [
    Conditions,
    *GenerateAssignment.class_traits()["preprocessors"].default(),
]
# Nothing of a student is executed here: the judge tries the programs in a sandbox.
c.Autograde.autograde_preprocessors = [
    Judge,
    ClearMetadataPreprocessor,
    LimitOutput,
    SaveGrades,
    AssignLatePenalties,
    CheckCellMetadata,
]
# The feedback shows the outcome of every case, but not the hidden cases themselves.
c.GenerateFeedback.preprocessors = [
    GetGrades,
    ClearOurHiddenTests,
    CSSHTMLHeaderPreprocessor,
    Page,
]
