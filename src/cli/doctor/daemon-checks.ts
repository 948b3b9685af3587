/** What `kosa8 doctor` learns from the daemon, which it starts: acceleration by real probe, budget, images. */
import { toKosa8Error } from '../../errors/kosa8-error.js'
import type { DaemonStatus } from '../../protocol/status.js'
import type { Kosa8Client } from '../../sdk/client.js'
import { fine, type Check } from './check.js'

/** Every check through the daemon; one that cannot be started is the only finding. */
export async function checkDaemon(client: Kosa8Client): Promise<Check[]> {
  try {
    const status = await client.status()
    return [fine('daemon', `version ${status.version}, process ${status.pid}`), checkAcceleration(status), checkBudget(status), await checkImages(client)]
  } catch (thrown) {
    const error = toKosa8Error(thrown)
    return [{ name: 'daemon', state: 'problem', message: error.message, cure: error.hint ?? 'see `kosa8 daemon status`' }]
  }
}

function checkAcceleration({ accelerator }: DaemonStatus): Check {
  if (accelerator === null) {
    return { name: 'acceleration', state: 'problem', message: 'could not be found out', cure: 'see the daemon\'s log, and the finding about qemu' }
  }
  const message = `${accelerator.name}: ${accelerator.reason}`
  if (accelerator.name === 'kvm') return fine('acceleration', message)
  return {
    name: 'acceleration', state: 'warning', message,
    cure: 'it works, but slower; for KVM use a host whose processor offers virtualisation, with /dev/kvm open to you (group kvm)',
  }
}

function checkBudget({ budget }: DaemonStatus): Check {
  const mib = (bytes: number): number => Math.round(bytes / 1024 ** 2)
  const message = `${mib(budget.freeBytes)} of ${mib(budget.totalBytes)} MiB free for machines`
  if (budget.freeBytes >= 256 * 1024 ** 2) return fine('budget', message)
  return { name: 'budget', state: 'warning', message, cure: 'remove sandboxes you do not need (kosa8 ls, kosa8 rm), or raise KOSA8_MEMORY_BUDGET' }
}

async function checkImages(client: Kosa8Client): Promise<Check> {
  const names = [...new Set((await client.listImages()).map(({ name }) => name))]
  if (names.includes('base')) return fine('images', names.join(', '))
  return { name: 'images', state: 'problem', message: 'there is no base image yet', cure: 'build it with: kosa8 image build' }
}
