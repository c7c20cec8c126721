"""What libraries read from the environment when they are imported. This module imports none of them."""

import os


def prepare() -> None:
    """Set what is not set already; call it before anything else of EmberEye is imported."""
    # grpc would otherwise write a line to the terminal for every process that is started beside it.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    # It would otherwise write a line of its own for each connection that does not prove who it is: to scan a port for
    # control would fill the log.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # Its newer listener hands each read from thread to thread: a message costs 70 µs then instead of 47.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
    # Our worker threads are the parallelism: BLAS' own would spin beside them, a tenth of the CPU time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
