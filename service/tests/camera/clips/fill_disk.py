"""Writes clips to a folder until a file is too large for the file system, and ends in the middle of one."""

import resource
import sys
from pathlib import Path

from camera.clips.pictures import about, frame, make_clip  # type: ignore[import-not-found] # run with tests on its path

from embereye.camera.clips.spool import ClipSpool

spool = ClipSpool(Path(sys.argv[1]))
make_clip(spool, count=5)
recording = spool.begin(about("full"), frame(0))
resource.setrlimit(resource.RLIMIT_FSIZE, (3 * len(frame(0).jpeg), -1))
try:
    for number in range(1, 9):
        recording.append(frame(number))
except OSError as error:
    print(error.strerror)
sys.exit(7)
