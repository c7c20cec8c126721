"""Measure the quality of detection on labelled clips."""
