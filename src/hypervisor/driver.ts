/**
 * The contract of a driver: code that runs virtual machines of one kind.
 *
 * Owns: types only. `qemu/` and `fake/` implement it, `registry.ts` alone names them, and one
 * conformance suite holds for all. Callers: `sandbox`, `daemon`, `workers`, `bench`.
 */
import type { Duplex } from 'node:stream'
import type { MachineId } from '../model/ids.js'
import type { MachineShape } from '../model/machine-shape.js'

export type { MachineShape } from '../model/machine-shape.js'

/** Files a machine boots from; the root disk is never written to. */
export interface BootImage {
  kernel: string
  initrd: string
  /** Raw ext4 root file system. */
  rootDisk: string
}

/**
 * Told where a machine lives: first before its process is started (pid 0), then with its pid, in both cases
 * before the guest can run. Who stores the handle here never loses a machine; a rejection ends the start.
 */
export type OnSpawned = (handle: MachineHandle) => Promise<void>

/** A machine to be booted. `directory` is private to it: sockets, log; made by the driver, removed by destroy. */
export interface BootConfig {
  id: MachineId
  directory: string
  /** Folder that holds every overlay of this host; backing files are named relative to it. */
  layersDirectory: string
  shape: MachineShape
  image: BootImage
  onSpawned?: OnSpawned | undefined
}

/** A machine to be restored from a snapshot. */
export interface RestoreConfig {
  id: MachineId
  directory: string
  layersDirectory: string
  snapshot: MachineSnapshot
  onSpawned?: OnSpawned | undefined
}

/** Raw artefacts of one machine at one instant. All paths absolute; the files never change again. */
export interface MachineSnapshot {
  shape: MachineShape
  image: BootImage
  fingerprint: Fingerprint
  /**
   * Guest memory, sparse, `shape.memoryMib` long; mapped privately by every restore. Beside it lies the
   * list of its extents (`util/extents.ts`).
   */
  memoryFile: string
  deviceFile: string
  /** File name of the frozen overlay in the layers directory. */
  diskLayer: string
}

/** What decides whether a snapshot can be restored here. */
export interface Fingerprint {
  driver: string
  /** e.g. "7.2.22". */
  version: string
  machineType: string
  accelerator: string
  cpuModel: string
}

/** What taking a snapshot cost. */
export interface SnapshotReport {
  snapshot: MachineSnapshot
  /** Milliseconds the vCPUs stood still. */
  pauseMs: number
  /** Bytes of memory that were private to this machine and had to be written in the pause. */
  privateBytes: number
}

/** What the owner of a machine does around the pause of a snapshot. */
export interface SnapshotHooks {
  /** Called right before the vCPUs stop; a rejection ends the snapshot and nothing is left behind. */
  beforePause?(): Promise<void>
  /** Called as soon as the vCPUs run again, also after a failure in the pause. */
  afterResume?(): Promise<void>
}

/** Small versioned record from which a driver finds its machine again, after its owner has died. */
export interface MachineHandle {
  version: 1
  driver: string
  id: MachineId
  /** 0 before the process is started: the machine is then looked for by its directory. */
  pid: number
  /** Start time of the process in clock ticks since boot, so that a reused pid is spared. */
  pidStartTicks: number
  directory: string
  layersDirectory: string
  shape: MachineShape
  image: BootImage
  /** Memory file the machine maps privately. */
  memoryFile: string
  /** The overlay QEMU writes to now. */
  activeLayer: string
  /** Memory and disk of the snapshot this machine came from, if any. */
  parent: MachineSnapshot | null
}

/** Measured now. */
export interface MachineInspection {
  isRunning: boolean
  /** It stands still at a write for which the host's disk has no room, and goes on once there is some. */
  waitsForDisk: boolean
  /** Bytes of host memory nobody else shares with this machine. */
  privateBytes: number
  /** Processor time used so far, milliseconds. */
  cpuMs: number
  activeLayerBytes: number
}

/** How a machine's process ended; `expected` when destroy asked for it. */
export interface MachineExit {
  expected: boolean
  message: string
}

/** One live virtual machine. Every method rejects with MACHINE_GONE once it has exited. */
export interface Machine {
  readonly handle: MachineHandle
  /** Settles when the machine's process has ended, never rejects. */
  readonly exited: Promise<MachineExit>
  /**
   * Opens the byte channel to the guest agent. One at a time: opening a new one closes the former.
   * Bytes of an earlier channel may still arrive first; the agent protocol skips them.
   */
  openChannel(): Promise<Duplex>
  /** Stops the vCPUs; nothing is written. */
  pause(): Promise<void>
  resume(): Promise<void>
  /**
   * Writes memory, device state and disk of this instant, then lets the machine go on (or leaves it
   * paused if it was). A failure leaves the machine running and no file behind. A long chain of overlays is
   * shortened before, so that what removed checkpoints wrote does not stay on disk for ever.
   * @throws Kosa8Error DISK_FULL with `neededBytes` in its details, CHECKPOINT_FAILED, MACHINE_GONE.
   * @param directory folder for the memory and device files, on the layers' file system; must exist
   * @param hooks the guest is made quiet right before the pause, after the slow copying of what is shared
   */
  snapshot(directory: string, hooks?: SnapshotHooks): Promise<SnapshotReport>
  inspect(): Promise<MachineInspection>
  /** Kills the process and removes its directory and active layer. Safe to call twice. */
  destroy(): Promise<void>
  /** Lets go of the machine without touching it: it goes on running and can be recovered. */
  detach(): void
}

/** Runs machines of one kind. */
export interface Driver {
  readonly name: string
  /** Describes what this host would run a machine with. Probes once, remembers per host and version. */
  fingerprint(): Promise<Fingerprint>
  /** Boots a machine; it is running when this resolves. Nothing is left behind on failure. */
  boot(config: BootConfig): Promise<Machine>
  /**
   * Checks, without starting anything, that a snapshot can be restored on this host as it is now.
   * @throws Kosa8Error CHECKPOINT_INCOMPATIBLE naming what differs, MACHINE_START_FAILED naming a file that is missing.
   */
  assertRestorable(snapshot: MachineSnapshot): Promise<void>
  /**
   * Builds a machine from a snapshot; it comes up paused.
   * @throws Kosa8Error CHECKPOINT_INCOMPATIBLE naming what differs, MACHINE_START_FAILED.
   */
  restore(config: RestoreConfig): Promise<Machine>
  /** Attaches to a machine that outlived its owner; null when it is gone. */
  recover(handle: MachineHandle): Promise<Machine | null>
  /** Ends and removes whatever a handle names, running or not. A reused pid is spared. */
  reap(handle: MachineHandle): Promise<void>
}
