/** What the parts of the sandboxes of this host are made with: `sandboxes.ts`, `sandbox-machines.ts`, `sandbox-checkpoints.ts`, `sandbox-restore.ts`. */
import type { WaitOptions } from '../admission/ledger.js'
import type { CheckpointCatalog } from '../checkpoint/catalog.js'
import type { ReservationId } from '../model/ids.js'
import type { Base } from '../model/run.js'
import type { Reservation } from '../model/reservation.js'
import type { SandboxHost } from '../sandbox/sandbox-host.js'
import type { MachineStore } from '../store/machine-store.js'
import type { Paths } from '../store/paths.js'
import type { SandboxStore } from '../store/sandbox-store.js'
import type { Clock } from '../util/clock.js'
import type { Gateways } from './gateways.js'

/** The repository a sandbox was made with. */
export interface SandboxRepository { hostPath: string; path: string; base: Base }

/** What sandboxes are made with. */
export interface SandboxParts {
  host: SandboxHost
  store: SandboxStore
  machines: MachineStore
  catalog: CheckpointCatalog
  paths: Paths
  clock: Clock
  /** Host file of further certificates the guest is to trust when it may reach the network. */
  caBundle: string | null
  gateways: Gateways
  /** With `onWait` it waits and says what for; without, it is there now or not at all. @throws MEMORY_INSUFFICIENT */
  reserve: (name: string, memoryMib: number, wait?: WaitOptions) => Promise<Reservation>
  release: (id: ReservationId) => Promise<void>
  onError: (message: string, error: unknown) => void
}
