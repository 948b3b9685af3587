/**
 * The base images as the daemon's HTTP interface offers them: listing with who uses what, and removing.
 *
 * Owns: what counts as use: a checkpoint or a machine of this home, a running machine of any other. Does not own:
 * how images are made, which is a program of its own.
 */
import type { CheckpointCatalog } from '../checkpoint/catalog.js'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { imageOf, listImages, type ImageManifest } from '../image/store.js'
import { isImageRunning, removeImages } from '../image/use.js'
import type { ImageDescription, RemovedImages } from '../protocol/sandboxes.js'
import type { MachinePurpose, MachineStore } from '../store/machine-store.js'

/** Who a machine belongs to that this home knows nothing of. */
const OTHER_HOME = 'a machine of another home'

/** An image and what uses it. */
interface UsedImage { image: ImageManifest; users: string[] }

/** Implements the images of the daemon's HTTP interface. */
export class ImageCalls {
  constructor(private readonly parts: { imagesDirectory: string; catalog: CheckpointCatalog; machines: MachineStore }) {}

  async list(): Promise<ImageDescription[]> {
    return (await this.findUsed()).map(({ image, users }) => ({
      name: image.name, hash: image.hash, createdAt: image.createdAt, sizeBytes: sizeOf(image), usedBy: users,
      source: image.imported === undefined ? 'recipe' : `${image.imported.reference ?? image.imported.archive} ${image.imported.digest.slice(0, 19)}`,
    }))
  }

  /** Removes every version of an image. @throws IMAGE_UNKNOWN, IMAGE_IN_USE (then nothing is removed). */
  async remove(name: string): Promise<void> {
    const images = await this.versionsOf(name)
    const users = [...new Set(images.flatMap((version) => version.users))]
    if (users.length > 0) throw inUse(name, users)
    const removed = await this.removeAll(images)
    if (removed.length < images.length) throw inUse(name, [OTHER_HOME])
  }

  /** Removes the versions of an image that are neither the newest nor in use. @throws IMAGE_UNKNOWN */
  async removeOld(name: string): Promise<RemovedImages> {
    const [, ...older] = await this.versionsOf(name)
    const removed = await this.removeAll(older.filter(({ users }) => users.length === 0))
    const isLeft = ({ image }: UsedImage): boolean => !removed.some(({ hash }) => hash === image.hash)
    return {
      removed: removed.map(({ hash }) => hash), freedBytes: removed.reduce((sum, image) => sum + sizeOf(image), 0),
      kept: older.filter(isLeft).map(({ image, users }) => ({ hash: image.hash, usedBy: users.length > 0 ? users : [OTHER_HOME] })),
    }
  }

  private async removeAll(images: UsedImage[]): Promise<ImageManifest[]> {
    return images.length === 0 ? [] : removeImages(images.map(({ image }) => image), this.parts.imagesDirectory)
  }

  private async versionsOf(name: string): Promise<UsedImage[]> {
    const images = (await this.findUsed()).filter(({ image }) => image.name === name)
    if (images.length > 0) return images
    throw new Kosa8Error('IMAGE_UNKNOWN', `there is no image named ${name}`, { hint: 'run `kosa8 image ls` to see the images there are' })
  }

  /** Every image, by name, the newest of each name first. */
  private async findUsed(): Promise<UsedImage[]> {
    const { imagesDirectory, catalog, machines } = this.parts
    const users = new Map<string, Set<string>>()
    const note = (hash: string, user: string): void => void users.set(hash, (users.get(hash) ?? new Set()).add(user))
    for (const { id, boot } of await catalog.listAll()) note(imageOf(boot).hash, `checkpoint ${id}`)
    for (const { handle, purpose } of await machines.list()) if (handle !== null) note(imageOf(handle.image).hash, describePurpose(purpose))
    return Promise.all((await listImages(imagesDirectory)).map(async (image) => {
      const own = [...users.get(image.hash) ?? []].sort()
      // A list is of use even where this cannot be asked; removing asks again.
      const isRunning = own.length === 0 && await isImageRunning(imagesDirectory, image).catch(() => false)
      return { image, users: isRunning ? [OTHER_HOME] : own }
    }))
  }
}

function describePurpose(purpose: MachinePurpose): string {
  return purpose.kind === 'sandbox' ? `sandbox ${purpose.name}` : `run ${purpose.run}`
}

function sizeOf({ sizes }: ImageManifest): number {
  return sizes.kernelBytes + sizes.initrdBytes + sizes.rootDiskBytes
}

function inUse(image: string, users: string[]): Kosa8Error {
  const shown = users.slice(0, 5).join(', ') + (users.length > 5 ? ` and ${users.length - 5} more` : '')
  return new Kosa8Error('IMAGE_IN_USE', `image ${image} is used by ${shown}`, {
    hint: `remove what uses it first (kosa8 rm, kosa8 checkpoint rm, kosa8 runs rm), or remove what is old and not used: kosa8 image rm ${image} --old`,
    details: { image, users },
  })
}
