"""`python -m handful` is the command `handful`."""

import sys

from handful.cli import main

sys.exit(main())
