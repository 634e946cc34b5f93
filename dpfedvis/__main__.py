"""`python -m dpfedvis`."""

import sys

from dpfedvis.cli import main

sys.exit(main())
