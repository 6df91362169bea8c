"""`python -m clover_agent` is `clover-agent`."""

from clover_agent.cli import main

main()
