"""``python -m dysharp``."""

import sys

from dysharp.cli import main

sys.exit(main())
