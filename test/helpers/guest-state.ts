/**
 * State in a guest that can be told from any other: text in the memory of a process, a file in memory, files on disk.
 *
 * Everything is made from a seed, in the guest; its hash is made there too, from what the process holds and from what
 * is read back from the disk. It holds the process's start time and the guest's boot, so a restarted one is noticed.
 */
import type { SandboxHandle } from '../../src/sdk/index.js'

/** Holds a text in a shell's variable alone, and says its hash when asked. */
const HOLDER = `echo $$ > /run/holder; mkfifo /run/ask /run/answer; state=
while :; do
  read -r verb text < /run/ask
  case $verb in
    hold) state=$(yes "$text" | head -c 200000) ;;
    hash) printf %s "$state" | sha256sum > /run/answer ;;
  esac
done`

const HASH = `sync; echo 3 > /proc/sys/vm/drop_caches
{ echo hash > /run/ask; cat /run/answer; cut -d' ' -f1,22 /proc/$(cat /run/holder)/stat; cat /proc/sys/kernel/random/boot_id
  sha256sum /dev/shm/blob; cd /data; find . -type f | sort | xargs sha256sum; } | sha256sum`

/** The state of one guest. */
export class GuestState {
  constructor(private readonly sandbox: SandboxHandle) {}

  /** Starts the process; the state is that of seed 0. */
  async begin(): Promise<void> {
    // The kernel makes up its boot id when it is first asked for.
    await this.run('mkdir -p /data; cat /proc/sys/kernel/random/boot_id')
    await this.sandbox.start(['sh', '-c', HOLDER])
    await this.run('until [ -p /run/answer ]; do sleep 0.05; done')
    await this.change('0', 1)
  }

  /** Replaces what is in memory, and writes one of eight files anew; what was written may still be unwritten to the disk. */
  async change(seed: string, sizeMib: number): Promise<void> {
    const file = [...seed].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % 8
    await this.run(`echo hold ${seed} > /run/ask; yes memory-${seed} | head -c ${sizeMib}M > /dev/shm/blob
yes disk-${seed} | head -c ${sizeMib}M > /data/${file}; echo ${seed} > /data/seed`)
  }

  /** One hash of everything. */
  async hash(): Promise<string> {
    return (await this.run(HASH)).slice(0, 64)
  }

  private async run(script: string): Promise<string> {
    const { stdout, stderr, exitCode } = await this.sandbox.exec(['sh', '-ec', script])
    if (exitCode !== 0) throw new Error(`in the guest: status ${exitCode}: ${stderr}`)
    return stdout
  }
}
