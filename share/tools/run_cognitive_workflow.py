#!/usr/bin/env python3
# MCP_TOOL_ENTRYPOINT
"""Runs ken-workflow: run_cognitive_workflow.py run StandardReasoningWorkflow < data.json"""

import sys

sys.dont_write_bytecode = True  # the folder may belong to somebody else
from ken_program import become

become("ken-workflow")
