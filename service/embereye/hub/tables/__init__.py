"""The rows that the hub stores: a module for each kind, with its columns and its statements."""
