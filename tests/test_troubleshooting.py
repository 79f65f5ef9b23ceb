"""The table of symptoms in TROUBLESHOOTING.md."""

from ddp_lab import ROOT
from tools import troubleshooting
from whichrank import Symptom


def test_every_symptom_has_a_row_and_a_lesson():
    assert list(troubleshooting.LOOKS) == list(Symptom)
    for row in troubleshooting.ROWS:
        assert (ROOT / "notebooks" / f"{row.lesson}.ipynb").exists(), row


def test_the_document_shows_the_table():
    document = (ROOT / "TROUBLESHOOTING.md").read_text(encoding="utf-8")
    assert troubleshooting.table() in document, "see python -m tools.troubleshooting"
