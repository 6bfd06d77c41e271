"""`python -m mha_sink`: see `mha_sink.cli`."""

import sys

from mha_sink.cli import main

if __name__ == "__main__":
    sys.exit(main())
