/**
 * Reading and writing of single JSON records.
 *
 * Owns: the check of everything that is read, and the error that names a damaged file. Called by the
 * stores beside it; nobody else reads the state home.
 */
import { readdir, readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import type { z } from 'zod'
import { Kosa8Error } from '../errors/kosa8-error.js'
import { writeFileAtomic, writeFileOnce } from '../util/atomic-write.js'

/**
 * Reads one record; null when the file does not exist.
 * @throws Kosa8Error STORE_CORRUPT naming the file.
 */
export async function readRecord<T>(file: string, schema: z.ZodType<T>): Promise<T | null> {
  const text = await readFileIfThere(file)
  if (text === null) return null
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw corrupt(file, 'it is not JSON', error)
  }
  const checked = schema.safeParse(value)
  if (checked.success) return checked.data
  const issue = checked.error.issues[0]
  throw corrupt(file, `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'not as expected'}`, checked.error)
}

/** Replaces one record, in full or not at all. */
export async function writeRecord(file: string, value: unknown): Promise<void> {
  await writeFileAtomic(file, encode(value))
}

/** Writes one record unless it is there; true when this call wrote it. */
export async function writeRecordOnce(file: string, value: unknown): Promise<boolean> {
  return writeFileOnce(file, encode(value))
}

/** The names of a folder, sorted; empty when there is no such folder. */
export async function listFolder(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).sort()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}

/** A folder of records `<id>.json`, all of one schema. */
export class RecordFolder<T> {
  constructor(private readonly folder: string, private readonly schema: z.ZodType<T>) {}

  async read(id: string): Promise<T | null> {
    return readRecord(this.fileOf(id), this.schema)
  }

  async write(id: string, value: T): Promise<void> {
    await writeRecord(this.fileOf(id), value)
  }

  /** @returns false when a record of this id was there already; it is left as it is. */
  async writeOnce(id: string, value: T): Promise<boolean> {
    return writeRecordOnce(this.fileOf(id), value)
  }

  /** Removes a record; nothing happens when there is none. */
  async remove(id: string): Promise<void> {
    await rm(this.fileOf(id), { force: true })
  }

  /** Every record, by id. Unfinished temporary files are not records. */
  async list(): Promise<T[]> {
    const names = (await listFolder(this.folder)).filter((name) => name.endsWith('.json') && !name.startsWith('.'))
    const records = await Promise.all(names.map((name) => readRecord(path.join(this.folder, name), this.schema)))
    return records.filter((record) => record !== null)
  }

  private fileOf(id: string): string {
    if (!/^[\w@=,.+-]+$/.test(id) || id.startsWith('.')) throw new Error(`not usable as a record id: ${JSON.stringify(id)}`)
    return path.join(this.folder, `${id}.json`)
  }
}

function encode(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`
}

function corrupt(file: string, what: string, cause: unknown): Kosa8Error {
  return new Kosa8Error('STORE_CORRUPT', `the record ${file} cannot be used: ${what}`, {
    hint: 'put it back from a backup, or remove it and what it describes',
    details: { file },
    cause,
  })
}

async function readFileIfThere(file: string): Promise<string | null> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}
