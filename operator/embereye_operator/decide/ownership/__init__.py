"""Whose a fleet or an object is: which operator looks after it, and what was applied by whom."""
