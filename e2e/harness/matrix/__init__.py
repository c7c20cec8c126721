"""The matrix of faults: the building under attack, the faults, their verdicts, and the page with the results."""
