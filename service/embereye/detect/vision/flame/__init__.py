"""Detection of flames among moving, glowing things, with the terms for and against each."""
