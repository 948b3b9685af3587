/**
 * The driver for QEMU: what this host runs machines with, and the entry to starting and finding them.
 *
 * Owns: QEMU's version, the choice of acceleration (by `probe.ts`), the check that a snapshot fits.
 */
import { constants } from 'node:fs'
import { access } from 'node:fs/promises'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { runProgram } from '../../util/spawn.js'
import type {
  BootConfig, BootImage, Driver, Fingerprint, Machine, MachineHandle, MachineSnapshot, RestoreConfig,
} from '../driver.js'
import { readProcessor } from './processor.js'
import { probeAcceleration, type AccelerationAnswer } from './probe.js'
import { recoverMachine, reapMachine } from './recover.js'
import { TCG_CPU_MODEL } from './command-line.js'
import { bootMachine, restoreMachine, type HostSettings } from './start.js'

/** What the owner of the driver decides. */
export interface QemuDriverOptions {
  /** File in which the answer of the acceleration probe is remembered. */
  probeCacheFile: string
  /** Folder for the machines of the probe; on one file system with nothing in particular. */
  probeDirectory: string
  /** The image to probe with; null while there is none: then hardware acceleration is not used. */
  probeImage: () => Promise<BootImage | null>
  /** Proves that a clone answers; without it a clone that loads and runs counts as good. */
  verifyClone?: ((machine: Machine) => Promise<void>) | undefined
  /** Name or path of QEMU; `qemu-system-x86_64` by default. */
  program?: string | undefined
  /** Folders it is looked for in. */
  searchPath?: string | undefined
  /** MiB of translated code kept per machine under TCG. */
  translationBufferMib?: number | undefined
}

const MACHINE_TYPE = 'microvm'
const DEFAULT_PROGRAM = 'qemu-system-x86_64'
const DEFAULT_SEARCH_PATH = '/usr/local/bin:/usr/bin:/bin'
/** Measured: see the figures beside the benchmark of clones. */
const DEFAULT_TRANSLATION_BUFFER_MIB = 64

/** Runs machines with QEMU. */
export class QemuDriver implements Driver {
  readonly name = 'qemu'
  private settings: Promise<HostSettings> | undefined
  private answer: Promise<AccelerationAnswer> | undefined

  constructor(private readonly options: QemuDriverOptions) {}

  async fingerprint(): Promise<Fingerprint> {
    return (await this.host()).fingerprint
  }

  /** Which acceleration is used here, and why. */
  async acceleration(): Promise<AccelerationAnswer> {
    await this.host()
    return this.answer as Promise<AccelerationAnswer>
  }

  async boot(config: BootConfig): Promise<Machine> {
    return bootMachine(config, await this.host())
  }

  async assertRestorable({ fingerprint, image, memoryFile, deviceFile }: MachineSnapshot): Promise<void> {
    assertCompatible(fingerprint, await this.fingerprint())
    // Not the kernel: a restored guest has it in its memory.
    await Promise.all([image.rootDisk, memoryFile, deviceFile].map(async (file) => {
      await access(file, constants.R_OK).catch((cause: unknown) => {
        throw new Kosa8Error('MACHINE_START_FAILED', `the checkpoint needs ${file}, which cannot be read`, {
          hint: 'put it back, or choose another checkpoint: kosa8 checkpoint ls NAME', details: { file }, cause,
        })
      })
    }))
  }

  async restore(config: RestoreConfig): Promise<Machine> {
    const host = await this.host()
    assertCompatible(config.snapshot.fingerprint, host.fingerprint)
    return restoreMachine(config, host)
  }

  async recover(handle: MachineHandle): Promise<Machine | null> {
    return recoverMachine(handle, await this.fingerprint())
  }

  async reap(handle: MachineHandle): Promise<void> {
    await reapMachine(handle)
  }

  /** Found out once; a failure is not remembered. */
  private host(): Promise<HostSettings> {
    this.settings ??= this.describeHost().catch((error: unknown) => {
      this.settings = undefined
      throw error
    })
    return this.settings
  }

  private async describeHost(): Promise<HostSettings> {
    const program = this.options.program ?? DEFAULT_PROGRAM
    const searchPath = this.options.searchPath ?? DEFAULT_SEARCH_PATH
    const version = await readVersion(program, searchPath)
    const { tscKhz } = await readProcessor()
    const settingsFor = ({ accelerator, cpuModel }: Pick<AccelerationAnswer, 'accelerator' | 'cpuModel'>): HostSettings => ({
      program, searchPath, version, tscKhz,
      acceleration: { accelerator, cpuModel: accelerator === 'kvm' ? 'host' : TCG_CPU_MODEL },
      translationBufferMib: this.options.translationBufferMib ?? DEFAULT_TRANSLATION_BUFFER_MIB,
      fingerprint: { driver: this.name, version: version.text, machineType: MACHINE_TYPE, accelerator, cpuModel },
    })
    this.answer = probeAcceleration({ ...this.options, qemuVersion: version.text, settingsFor })
    return settingsFor(await this.answer)
  }
}

async function readVersion(program: string, searchPath: string): Promise<{ major: number; minor: number; text: string }> {
  const { stdout } = await runProgram(program, ['--version'], { env: { PATH: searchPath }, timeoutMs: 10_000 })
  const match = /version ((\d+)\.(\d+)[.\d]*)/.exec(stdout.toString())
  if (match === null) throw new Kosa8Error('MACHINE_START_FAILED', `${program} does not tell its version`)
  return { text: match[1] ?? '', major: Number(match[2]), minor: Number(match[3]) }
}

function assertCompatible(saved: Fingerprint, here: Fingerprint): void {
  const fields = ['driver', 'version', 'machineType', 'accelerator', 'cpuModel'] as const
  const differing = fields.filter((field) => saved[field] !== here[field])
  if (differing.length === 0) return
  const list = differing.map((field) => `${field} ${saved[field]} (here ${here[field]})`).join(', ')
  throw new Kosa8Error('CHECKPOINT_INCOMPATIBLE', `the checkpoint was saved with another ${list}`, {
    hint: 'restore it on a host like the one it was saved on, or take a new checkpoint here',
    details: { saved, here, differing },
  })
}
