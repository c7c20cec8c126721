"""A pass over one fleet, in the order of its modules: read, decide (in `decide/`), apply, report."""
