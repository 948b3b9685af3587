/**
 * Entry of the thread that reads test results: one message in, one TestRun out. Started by `parse-in-thread.ts`.
 */
import { parentPort, workerData } from 'node:worker_threads'
import { readTestRun, type TestEvidence } from './read-test-run.js'

parentPort?.postMessage(readTestRun(workerData as TestEvidence))
