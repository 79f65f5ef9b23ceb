"""Grading by criterion. Each assignment has a module here, from which its notebook
imports `check`; its harness runs beside the student's program, in every rank.
"""
