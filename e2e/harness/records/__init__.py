"""The records of a run, made by independent observers, on which tests rely."""
