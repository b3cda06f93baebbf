#!/usr/bin/env python3
# MCP_TOOL_ENTRYPOINT
"""A governed response: runs ken-respond."""

import sys

sys.dont_write_bytecode = True  # the folder may belong to somebody else
from ken_program import become

become("ken-respond")
