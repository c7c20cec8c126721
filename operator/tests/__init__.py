"""A package, unlike other test folders: pytest would else import this folder's parent over Python's own `operator`."""
