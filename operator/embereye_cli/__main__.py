"""`python -m embereye_cli`: the `embereye` command of this very installation."""

import sys

from embereye_cli.main import main

sys.exit(main())
