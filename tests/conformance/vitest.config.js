import { defineConfig } from "vitest/config"

// A long poll of ken waits 30 s, and some tests wait for its end without saying how long that may take.
export default defineConfig({ test: { include: ["*.test.js"], cache: false, testTimeout: 45_000 } })
