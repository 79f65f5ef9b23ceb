"""A folder for each assignment. What every folder provides: engine/assignment.py."""
