/**
 * QEMU's command line, as a pure function of what the machine is.
 *
 * Owns: every flag and why it is there. A restored machine must have the very same devices as the one
 * it was saved from, so both come from here.
 */
import type { BootImage, MachineShape } from '../driver.js'

/** File descriptors the process inherits. */
export const INHERITED_FD = { deviceState: 3, qmp: 4, channel: 5 } as const

/** Name of the guest agent's port in the guest. */
export const CHANNEL_PORT = 'org.kosa8.agent'

/** Identifier of the disk in QMP. */
export const DISK_ID = 'disk'

/** Identifier and size in bytes of the ring that keeps the end of the guest's console. */
export const CONSOLE_ID = 'console'
export const CONSOLE_BYTES = 64 * 1024

/** Hypervisor settings of a machine; part of its fingerprint. */
export interface Acceleration {
  accelerator: 'kvm' | 'tcg'
  /** QEMU's name of the processor model. */
  cpuModel: string
}

/** Everything the command line depends on. */
export interface CommandLineConfig {
  /** Shown in the process list, and how a lost process is found again. */
  name: string
  shape: MachineShape
  image: BootImage
  /** Guest memory, mapped privately. */
  memoryFile: string
  /** The overlay to write to; absolute path. */
  activeLayer: string
  acceleration: Acceleration
  /** Size of TCG's buffer for translated code. */
  translationBufferMib: number
  /** True: device state arrives on an inherited descriptor. */
  isRestore: boolean
  /** Frequency of the host's time stamp counter where it is known for certain, kHz. */
  tscKhz: number | null
  /** QEMU's major and minor version. */
  version: { major: number; minor: number }
}

/** Builds the arguments of qemu-system-x86_64. The machine always comes up paused. */
export function buildCommandLine(config: CommandLineConfig): string[] {
  const { shape, image } = config
  return [
    '-name', config.name,
    '-nodefaults', '-no-user-config', '-display', 'none',
    // A guest that breaks out finds no fork, no exec and no privileges to gain.
    '-sandbox', 'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
    '-machine', 'microvm,acpi=on,rtc=on,memory-backend=memory',
    '-accel', describeAccelerator(config),
    '-cpu', config.acceleration.cpuModel,
    '-smp', String(shape.cpus),
    '-m', `${shape.memoryMib}M`,
    '-object', describeMemory(config),
    // Device state alone has no configuration section and no description of itself.
    '-global', 'migration.send-configuration=off',
    // Says when a saved device state is loaded; without it nobody does.
    '-global', 'migration.x-events=on',
    '-machine', 'suppress-vmdesc=on',
    // A restored guest has them in its memory, and never starts anew: QEMU need not read them into its own.
    ...(config.isRestore ? [] : ['-kernel', image.kernel, '-initrd', image.initrd, '-append', describeKernelParameters(config)]),
    '-drive', `if=none,id=${DISK_ID},format=qcow2,cache=unsafe,file=${escapeValue(config.activeLayer)}`,
    '-device', `virtio-blk-device,drive=${DISK_ID}`,
    '-device', 'virtio-serial-device,max_ports=2',
    '-chardev', `socket,id=channel,fd=${INHERITED_FD.channel},server=on,wait=off`,
    '-device', `virtserialport,chardev=channel,name=${CHANNEL_PORT}`,
    ...(shape.network === 'user' ? ['-netdev', 'user,id=network', '-device', 'virtio-net-device,netdev=network'] : []),
    '-chardev', `ringbuf,id=${CONSOLE_ID},size=${CONSOLE_BYTES}`, '-serial', `chardev:${CONSOLE_ID}`,
    '-chardev', `socket,id=qmp,fd=${INHERITED_FD.qmp},server=on,wait=off`, '-mon', 'chardev=qmp,mode=control',
    // A guest that ends stays, stopped, until its owner has read the last lines of its console.
    '-action', 'reboot=shutdown,shutdown=pause',
    '-S',
    ...(config.isRestore ? ['-incoming', `fd:${INHERITED_FD.deviceState}`] : []),
  ]
}

/**
 * Work the guest's kernel is spared under TCG, where each piece of it is translated anew in every clone. What goes
 * is the kernel's hardening against its own processes; the border of a sandbox is QEMU. Under KVM it costs next to
 * nothing, and stays.
 */
const TCG_KERNEL_PARAMETERS = [
  // Code of a program at the same address in each of its processes is translated once.
  'norandmaps',
  'mitigations=off', 'randomize_kstack_offset=off', 'hardened_usercopy=off', 'init_on_alloc=0',
  // Landlock stays: agents shut in their own commands with it.
  'lsm=landlock', 'audit=0', 'psi=0',
  // Nothing that wakes up an idle machine; what lies in its memory is saved with it and need not reach the disk soon.
  'nowatchdog', 'sysctl.vm.compaction_proactiveness=0', 'sysctl.vm.stat_interval=60', 'sysctl.vm.dirty_writeback_centisecs=0',
  // A vCPU that was not scheduled for a while looks like a bad counter to the kernel's watchdog; it is the host's own.
  'tsc=reliable',
]

/**
 * Under TCG the guest reads the host's time stamp counter and measures its frequency against the timer chip. On
 * a busy host that measurement fails, and the kernel then waits for ever in its first second: it is told instead.
 */
function describeKernelParameters({ acceleration, tscKhz, shape }: CommandLineConfig): string {
  const parameters = ['console=ttyS0', 'quiet', 'panic=-1', 'random.trust_cpu=on', `kosa8.pids=${shape.processesMax}`]
  if (acceleration.accelerator !== 'tcg') return parameters.join(' ')
  return [...parameters, ...TCG_KERNEL_PARAMETERS, ...(tscKhz === null ? [] : [`tsc_early_khz=${tscKhz}`])].join(' ')
}

function describeAccelerator({ acceleration, translationBufferMib }: CommandLineConfig): string {
  return acceleration.accelerator === 'kvm' ? 'kvm' : `tcg,thread=multi,tb-size=${translationBufferMib}`
}

function describeMemory({ shape, memoryFile, version }: CommandLineConfig): string {
  // From 8.2 on QEMU can be told never to write to the file, so that no discard reaches a sibling.
  const canProtect = version.major > 8 || (version.major === 8 && version.minor >= 2)
  return `memory-backend-file,id=memory,size=${shape.memoryMib}M,share=off,mem-path=${escapeValue(memoryFile)}`
    + (canProtect ? ',readonly=on,rom=off' : '')
}

/**
 * Everything TCG can do, but for two promises of fast string instructions (the guest would copy and clear memory
 * with them, and TCG runs them byte by byte), and for protections of the guest's kernel and a fifth level of page
 * tables, which are only more code to translate and to run.
 */
export const TCG_CPU_MODEL = 'max,-erms,-fsrm,-smap,-smep,-umip,-pku,-la57'

/** QEMU's option syntax: a comma in a value is doubled. */
function escapeValue(value: string): string {
  return value.replaceAll(',', ',,')
}
