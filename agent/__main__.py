"""``python -m agent`` is ``nodetopo``."""

from agent.cli.main import main

raise SystemExit(main())
