/**
 * The driver with a stop-watch around it: when each step of a restore was reached.
 *
 * Owns: nothing of the work. It lets the product's own path be measured instead of a copy of it.
 */
import type {
  BootConfig, Driver, Fingerprint, Machine, MachineHandle, MachineSnapshot, RestoreConfig,
} from '../src/hypervisor/driver.js'

/** When the steps of one restore were reached, milliseconds of `performance.now()`. */
export interface RestoreMarks {
  called: number
  /** The journal knows where the machine will be. */
  recorded: number
  /** The process has been started. */
  spawned: number
  /** Device state is loaded, the machine is paused. */
  loaded: number
}

/** Runs machines with another driver and notes the last restore. */
export class TimedDriver implements Driver {
  readonly name: string
  /** Of the restore that ended last; only meaningful while one runs at a time. */
  lastRestore: RestoreMarks | null = null

  constructor(private readonly driver: Driver) {
    this.name = driver.name
  }

  async restore(config: RestoreConfig): Promise<Machine> {
    const marks: RestoreMarks = { called: performance.now(), recorded: 0, spawned: 0, loaded: 0 }
    const machine = await this.driver.restore({
      ...config,
      onSpawned: async (handle) => {
        if (handle.pid !== 0) marks.spawned = performance.now()
        await config.onSpawned?.(handle)
        if (handle.pid === 0) marks.recorded = performance.now()
      },
    })
    marks.loaded = performance.now()
    this.lastRestore = marks
    return machine
  }

  fingerprint(): Promise<Fingerprint> {
    return this.driver.fingerprint()
  }

  assertRestorable(snapshot: MachineSnapshot): Promise<void> {
    return this.driver.assertRestorable(snapshot)
  }

  boot(config: BootConfig): Promise<Machine> {
    return this.driver.boot(config)
  }

  recover(handle: MachineHandle): Promise<Machine | null> {
    return this.driver.recover(handle)
  }

  reap(handle: MachineHandle): Promise<void> {
    return this.driver.reap(handle)
  }
}
