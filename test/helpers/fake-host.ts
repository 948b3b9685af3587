/**
 * A host with real stores and folders whose machines are fake ones, each with an agent that follows a script.
 */
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import type { MachineSnapshot } from '../../src/hypervisor/driver.js'
import { FakeDriver } from '../../src/hypervisor/fake/fake-driver.js'
import { createMachineId } from '../../src/model/ids.js'
import { SandboxHost } from '../../src/sandbox/sandbox-host.js'
import { MachineStore } from '../../src/store/machine-store.js'
import { createPaths, preparePaths, type Paths } from '../../src/store/paths.js'
import { systemClock } from '../../src/util/clock.js'
import { ownProcessIdentity } from '../../src/util/process-identity.js'
import { ScriptedAgent, type AgentScript } from './scripted-agent.js'

/** One state home and what lives in it. */
export class FakeHost {
  readonly driver: FakeDriver
  readonly machines: MachineStore
  readonly host: SandboxHost
  /** The agents of the machines started so far, in order. */
  readonly agents: ScriptedAgent[] = []
  /** How the agents of machines to come behave. */
  script: AgentScript = {}

  private constructor(readonly paths: Paths) {
    this.driver = new FakeDriver({
      makeGuest: () => {
        const agent = new ScriptedAgent(this.script)
        this.agents.push(agent)
        return agent
      },
    })
    this.machines = new MachineStore(paths)
    this.host = new SandboxHost({ driver: this.driver, paths, machines: this.machines, clock: systemClock, owner: ownProcessIdentity() })
  }

  static async open(home?: string): Promise<FakeHost> {
    const paths = createPaths(home ?? await mkdtemp(path.join(tmpdir(), 'kosa8-host-')))
    await preparePaths(paths)
    return new FakeHost(paths)
  }

  async close(): Promise<void> {
    await rm(this.paths.home, { recursive: true, force: true })
    await rm(this.paths.socketRoot, { recursive: true, force: true })
  }

  /** The snapshot of a machine that has ended since. */
  async snapshot(): Promise<MachineSnapshot> {
    const folder = path.join(this.paths.home, 'snapshot')
    await mkdir(folder)
    const image = { kernel: '/image/vmlinuz', initrd: '/image/initrd', rootDisk: '/image/root' }
    const id = createMachineId()
    const source = await this.driver.boot({
      id, directory: this.paths.machineDirectory(id), layersDirectory: this.paths.layers,
      shape: { memoryMib: 1, cpus: 1, network: 'none', diskMib: null, processesMax: 4096 }, image,
    })
    const { snapshot } = await source.snapshot(folder)
    await source.destroy()
    this.agents.length = 0
    return snapshot
  }

  /** What there is of machines now: records, folders, layers. */
  async left(): Promise<{ records: number; folders: string[]; layers: string[] }> {
    const names = async (folder: string): Promise<string[]> => (await readdir(folder).catch(() => [])).sort()
    return {
      records: (await this.machines.list()).length,
      folders: await names(path.dirname(this.paths.machineDirectory(createMachineId()))),
      layers: await names(this.paths.layers),
    }
  }
}
