import sys

from tests.protocol.sim.cli import main

sys.exit(main())
