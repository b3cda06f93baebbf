// Runs the public conformance suite against the gateway that CONFORMANCE_TEST_URL names (<gateway>/streams).
// KEN_RETRY=1 repeats a request once if its connection is reset or refused.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"
import fc from "fast-check"

const baseUrl = process.env.CONFORMANCE_TEST_URL
if (!baseUrl) throw new Error("CONFORMANCE_TEST_URL is not set: the URL of a gateway's /streams")

// The report of a property then tells a lost connection from a wrong answer.
fc.configureGlobal({ includeErrorInReport: true })

const LOST = new Set(["ECONNRESET", "ECONNREFUSED", "EPIPE", "UND_ERR_SOCKET"])

if (process.env.KEN_RETRY) {
  const once = globalThis.fetch
  globalThis.fetch = async (...request) => {
    try {
      return await once(...request)
    } catch (error) {
      if (!LOST.has(error?.cause?.code)) throw error
      const again = await once(...request)
      // The first one may have been done, and its answer lost. Then it is no wrong answer that the second one is a conflict.
      if (again.status === 409) throw error
      return again
    }
  }
}

runConformanceTests({ baseUrl, longPollTimeoutMs: 30_000 })
