#!/usr/bin/env python3
# MCP_TOOL_ENTRYPOINT
"""The emotional state of a text: runs ken-esl."""

import sys

sys.dont_write_bytecode = True  # the folder may belong to somebody else
from ken_program import become

become("ken-esl")
