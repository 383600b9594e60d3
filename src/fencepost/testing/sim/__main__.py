import sys

from fencepost.testing.sim.cli import main

sys.exit(main())
