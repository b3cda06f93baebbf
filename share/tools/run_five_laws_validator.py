#!/usr/bin/env python3
# MCP_TOOL_ENTRYPOINT
"""The five-laws validator: runs ken-laws."""

import sys

sys.dont_write_bytecode = True  # the folder may belong to somebody else
from ken_program import become

become("ken-laws")
