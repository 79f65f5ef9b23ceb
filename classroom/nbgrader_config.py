"""How nbgrader runs this course: the same for `make`, `nbgrader` and the formgrader."""

import sys
from pathlib import Path

# For what `classroom` and `ddp_lab` hold.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nbconvert.preprocessors import (  # noqa: E402
    ClearMetadataPreprocessor,
    CSSHTMLHeaderPreprocessor,
)
from nbgrader.apps import NbGraderAPI  # noqa: E402
from nbgrader.converters import GenerateAssignment  # noqa: E402
from nbgrader.coursedir import CourseDirectory  # noqa: E402
from nbgrader.preprocessors import (  # noqa: E402
    AssignLatePenalties,
    CheckCellMetadata,
    GetGrades,
    LimitOutput,
)

from classroom.engine.assignment import COURSE, notebook  # noqa: E402
from classroom.engine.preprocessors import (  # noqa: E402
    ClearOurHiddenTests,
    Conditions,
    Judge,
    Page,
    SaveGrades,
)
from classroom.engine.submission import stamp  # noqa: E402
from classroom.extras.late import LateDays, LateNote, Settle  # noqa: E402

# A student's timestamp.txt may be anything: the Formgrader, too, reads it in bounds.
CourseDirectory.get_existing_timestamp = lambda self, folder: stamp(
    Path(folder) / "any"
)[0]
NbGraderAPI.get_submitted_timestamp = lambda self, assignment, student: stamp(
    notebook("submitted", assignment, student)
)[0]

c = get_config()  # type: ignore[name-defined]  # noqa: F821  (nbgrader has it)
c.CourseDirectory.root = str(COURSE)
c.CourseDirectory.course_id = "ddp-lab"
c.CourseDirectory.db_url = f"sqlite:///{COURSE / 'gradebook.db'}"
# On a box that students share: a folder that all of them may write to.
c.Exchange.root = str(COURSE / "exchange")
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
# Late work, by the due dates of the gradebook; see extras/late.py. With these values
# no points are taken off.
c.AssignLatePenalties.plugin_class = LateDays
c.LateDays.free_days = 0  # of each student, over the whole course
c.LateDays.percent_per_day = 0  # of the assignment's points, for each further day
c.LateDays.most_days = 365  # later than that, it earns no points
# The feedback shows the outcome of every case, but not the hidden cases themselves.
c.GenerateFeedback.preprocessors = [
    Settle,
    GetGrades,
    ClearOurHiddenTests,
    CSSHTMLHeaderPreprocessor,
    Page,
    LateNote,
]
