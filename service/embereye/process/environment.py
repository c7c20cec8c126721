"""Set environment variables that libraries read when they are imported. This module imports none of them."""

import os


def prepare() -> None:
    """Set each variable that is not set yet. Call it before anything else of EmberEye is imported."""
    # Otherwise grpc writes a line to the terminal for every process that is started.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    # Otherwise grpc writes a line for each unauthenticated connection, so a port scan would fill the log.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # grpc's newer listener passes each read between threads: a message costs 70 µs instead of 47.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
    # EmberEye has worker threads; those of BLAS would only spin, for a tenth of the CPU time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
