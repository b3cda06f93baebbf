import { defineConfig } from "vitest/config"

// A long poll of ken waits 30 s, and some tests wait for its end without a timeout of their own.
export default defineConfig({ test: { include: ["*.test.js"], cache: false, testTimeout: 45_000 } })
