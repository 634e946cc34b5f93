"""`python -m dpfedvis`."""

import sys

from dpfedvis.cli.main import main

sys.exit(main())
