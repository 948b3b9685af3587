import { defineConfig } from 'vitest/config'

// Tests start virtual machines under software emulation: generous limits, few files at once.
export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ['test/fixtures/**'],
    testTimeout: 120_000,
    hookTimeout: 180_000,
    maxWorkers: 2,
    pool: 'forks',
  },
})
