import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { readGroups, readHostMemory, readMemoryStall, type SignalRoots } from '../../src/admission/signals/memory-signals.js'

let root: string
let roots: SignalRoots
beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), 'kosa8-signals-'))
  roots = { proc: path.join(root, 'proc'), cgroup: path.join(root, 'cgroup') }
})
afterEach(() => rm(root, { recursive: true }))

async function lay(files: Record<string, string>): Promise<void> {
  for (const [name, content] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(root, name)), { recursive: true })
    await writeFile(path.join(root, name), content)
  }
}

describe('what the kernel says about memory', () => {
  it('is read from the host itself', async () => {
    const memory = await readHostMemory()
    expect(memory.availableBytes).toBeGreaterThan(0)
    expect(memory.totalBytes).toBeGreaterThan(memory.availableBytes)
  })

  it('is read from /proc/meminfo and /proc/pressure/memory', async () => {
    await lay({
      'proc/meminfo': 'MemTotal:       16384000 kB\nMemFree:         1000000 kB\nMemAvailable:    8192000 kB\nBuffers:          200000 kB\n',
      'proc/pressure/memory': 'some avg10=12.34 avg60=3.00 avg300=1.00 total=123456\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=999\n',
    })
    expect(await readHostMemory(roots)).toEqual({ totalBytes: 16_384_000 * 1024, availableBytes: 8_192_000 * 1024 })
    expect(await readMemoryStall(roots)).toBe(12.34)
  })

  it('has no stalls on a kernel without pressure information', async () => {
    expect(await readMemoryStall(roots)).toBeNull()
  })
})

describe('the limits of control groups', () => {
  it('are found on every level of cgroup v2, "high" as well as "max"', async () => {
    await lay({
      'proc/self/cgroup': '0::/user.slice/user-1000.slice/app.scope\n',
      'cgroup/user.slice/memory.max': 'max\n',
      'cgroup/user.slice/memory.current': '900000\n',
      'cgroup/user.slice/user-1000.slice/memory.max': '8000000\n',
      'cgroup/user.slice/user-1000.slice/memory.high': '6000000\n',
      'cgroup/user.slice/user-1000.slice/memory.current': '5000000\n',
      'cgroup/user.slice/user-1000.slice/memory.stat': 'anon 2000000\nfile 3000000\ninactive_file 1500000\nactive_file 1500000\n',
      'cgroup/user.slice/user-1000.slice/app.scope/memory.max': '4000000\n',
      'cgroup/user.slice/user-1000.slice/app.scope/memory.current': '100\n',
    })
    expect(await readGroups(roots)).toEqual([
      { limitBytes: 6_000_000, workingSetBytes: 3_500_000 }, { limitBytes: 4_000_000, workingSetBytes: 100 },
    ])
  })

  it('are found in cgroup v1, beside an empty v2 hierarchy, "no limit" left out', async () => {
    await lay({
      'proc/self/cgroup': '12:cpu,cpuacct:/job\n4:memory:/ci/job\n0::/\n',
      'cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
      'cgroup/memory/memory.usage_in_bytes': '77\n',
      'cgroup/memory/ci/job/memory.limit_in_bytes': '2147483648\n',
      'cgroup/memory/ci/job/memory.usage_in_bytes': '1073741824\n',
      'cgroup/memory/ci/job/memory.stat': 'cache 500\ninactive_file 1\ntotal_inactive_file 73741824\n',
    })
    expect(await readGroups(roots)).toEqual([{ limitBytes: 2_147_483_648, workingSetBytes: 1_000_000_000 }])
  })

  it('are found at the mounted root in a container, where the path named is the host\'s', async () => {
    await lay({
      'proc/self/cgroup': '0::/../../kubepods/pod1\n',
      'cgroup/memory.max': '1000\n',
      'cgroup/memory.current': '10\n',
    })
    expect(await readGroups(roots)).toEqual([{ limitBytes: 1000, workingSetBytes: 10 }])
  })

  it('are none where there are no control groups', async () => {
    expect(await readGroups(roots)).toEqual([])
  })
})
