"""Scores of detection on labelled clips."""
