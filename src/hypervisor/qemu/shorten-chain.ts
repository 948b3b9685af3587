/**
 * Keeping a machine's chain of overlays short.
 *
 * Every snapshot adds an overlay, and those below stay for as long as anything lies on them: a sandbox that is
 * saved again and again would keep every version of every block it ever wrote. So from some length on the active
 * layer is flattened: QEMU copies what the lower layers hold into it while the machine runs, until it lies on the
 * root disk alone. The lower layers are not touched; they go once no checkpoint needs them.
 */
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { Kosa8Error } from '../../errors/kosa8-error.js'
import { DISK_MARGIN_BYTES, readFreeSpace } from '../../util/disk-space.js'
import { readOverlayHeader } from '../../util/qcow2.js'
import type { MachineHandle } from '../driver.js'
import { DISK_ID } from './command-line.js'
import type { QmpClient } from './qmp/client.js'

/** Layers below the active one from which on it is flattened: more than the ten that checkpoints of one sandbox need. */
const LOWER_LAYERS_MAX = 16

const JOB_ID = 'flatten'

/**
 * Flattens the active layer if its chain is long. Where the disk has no room for that, or QEMU cannot do it, the
 * chain stays as it is and the next snapshot tries again: nothing depends on its length.
 */
export async function shortenChain({ handle, qmp }: { handle: MachineHandle; qmp: QmpClient }): Promise<void> {
  // An owner that died may have left one at work; the disk cannot be switched before it is done.
  await waitForJobs(qmp)
  const chain = await readChain(handle)
  if (chain.lowerLayers <= LOWER_LAYERS_MAX) return
  const free = await readFreeSpace(handle.layersDirectory)
  if (free.bytes < chain.lowerBytes + DISK_MARGIN_BYTES) return
  const base = await findRootNode(qmp, path.resolve(handle.layersDirectory, chain.rootName))
  if (base === null) return
  const isAtWork = await qmp.call('block-stream', {
    'job-id': JOB_ID, device: DISK_ID, 'base-node': base, 'backing-file': chain.rootName,
  }).then(() => true, (error: unknown) => {
    if (Kosa8Error.isInstance(error) && error.code === 'MACHINE_PROTOCOL') return false
    throw error
  })
  if (isAtWork) await waitForJobs(qmp)
}

/** How long a machine's chain is, what its lower layers take on disk, and the lowest one's name for the root disk. */
async function readChain({ layersDirectory, activeLayer }: MachineHandle): Promise<{ lowerLayers: number; lowerBytes: number; rootName: string }> {
  let [lowerLayers, lowerBytes] = [0, 0]
  for (let name = activeLayer; ;) {
    const { backingName } = await readOverlayHeader(path.join(layersDirectory, name))
    if (backingName === null || backingName.includes('/')) return { lowerLayers, lowerBytes, rootName: backingName ?? '' }
    name = backingName
    lowerLayers += 1
    lowerBytes += (await stat(path.join(layersDirectory, name))).blocks * 512
  }
}

const nodesSchema = z.array(z.object({ 'node-name': z.string(), drv: z.string(), file: z.string() }))

/** QEMU's name for the root disk in its graph. By file name it would not find it below a layer it switched to itself. */
async function findRootNode(qmp: QmpClient, rootDisk: string): Promise<string | null> {
  const nodes = nodesSchema.parse(await qmp.call('query-named-block-nodes', { flat: true }))
  return nodes.find(({ drv, file }) => drv === 'raw' && path.resolve(file) === rootDisk)?.['node-name'] ?? null
}

const jobsSchema = z.array(z.unknown())

/** Resolves once QEMU works on no disk in the background. */
async function waitForJobs(qmp: QmpClient): Promise<void> {
  let wake = (): void => undefined
  const stopListening = qmp.onEvent(({ name }) => { if (name === 'JOB_STATUS_CHANGE') wake() })
  try {
    for (;;) {
      const changed = new Promise<void>((resolve) => { wake = resolve })
      if (jobsSchema.parse(await qmp.call('query-block-jobs')).length === 0) return
      await Promise.race([changed, qmp.lost.then((reason) => Promise.reject(reason))])
    }
  } finally {
    stopListening()
  }
}
