"""Detection of motion, flames and smoke in frames. Pure: numpy and OpenCV, time is an argument."""
