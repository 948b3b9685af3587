/** Values of flags, from text to what they mean. Each throws commander's own error, which names the flag. */
import { InvalidArgumentError } from 'commander'
import type { Matrix } from '../config/project-defaults.js'
import { formatEgress, parseEgress } from '../model/egress.js'
import { parseDurationMs, parseMemoryMib } from '../config/units.js'
import { DISK_MIB_MAX, MEMORY_MIB_MIN, PROCESSES_MAX_MAX, PROCESSES_MAX_MIN } from '../protocol/sandboxes.js'

/** "512M" or "2G", in MiB. */
export function memoryOption(text: string): number {
  const mib = parseMemoryMib(text)
  if (mib === null) throw new InvalidArgumentError('use a size such as 512M or 2G')
  if (mib < MEMORY_MIB_MIN) throw new InvalidArgumentError(`use at least ${MEMORY_MIB_MIN}M`)
  return mib
}

/** "8G", in MiB. */
export function diskOption(text: string): number {
  const mib = parseMemoryMib(text)
  if (mib === null || mib > DISK_MIB_MAX) throw new InvalidArgumentError('use a size such as 20G, at most 1T')
  return mib
}

/** A number of processes. */
export function processesOption(text: string): number {
  return wholeNumberOption(PROCESSES_MAX_MIN, PROCESSES_MAX_MAX)(text)
}

/** "30m" or "90s", in milliseconds. */
export function durationOption(text: string): number {
  const ms = parseDurationMs(text)
  if (ms === null) throw new InvalidArgumentError('use a duration such as 90s, 30m or 1h30m')
  return ms
}

/** A parser of whole numbers within bounds. */
export function wholeNumberOption(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = Number(text)
    if (!/^\d+$/.test(text) || value < min || value > max) throw new InvalidArgumentError(`use a whole number from ${min} to ${max}`)
    return value
  }
}

/** A number of trials at once, or "auto". */
export function parallelOption(text: string): number | null {
  return text === 'auto' ? null : wholeNumberOption(1, 256)(text)
}

export const EGRESS_HELP = 'what it may reach: deny, allow, or hosts, e.g. registry.example,*.example.org:8443'

/** "deny", "allow" or a list of hosts, as a rule's normal form. */
export function egressOption(text: string): string {
  try {
    return formatEgress(parseEgress(text))
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message)
  }
}

/** "a,b,c"; white space around names is dropped, an empty text is no name. */
export function listOption(text: string): string[] {
  return text.split(',').map((part) => part.trim()).filter((part, _index, all) => part !== '' || all.length > 1)
}

/** One `key=v1,v2`, added to those before it. */
export function matrixOption(text: string, before: Matrix | undefined): Matrix {
  const match = /^([A-Za-z_][A-Za-z0-9_]{0,31})=(.+)$/.exec(text)
  if (match === null) throw new InvalidArgumentError('use key=value1,value2')
  const [, key, values] = match as unknown as [string, string, string]
  if (before !== undefined && Object.hasOwn(before, key)) throw new InvalidArgumentError(`the key ${key} is given twice`)
  const parts = values.split(',')
  if (parts.includes('')) throw new InvalidArgumentError('a value is empty')
  return { ...before, [key]: parts }
}

/** "HOST:PORT", an IPv6 address in brackets. */
export function addressOption(text: string): { host: string; port: number } {
  const match = /^(?:\[([0-9a-f:]+)\]|([^:\s/]+)):(\d{1,5})$/i.exec(text)
  const port = Number(match?.[3])
  if (match === null || port > 65535) throw new InvalidArgumentError('use HOST:PORT, such as 127.0.0.1:8443')
  return { host: (match[1] ?? match[2]) as string, port }
}

/** Help of `--approval`, which every guarded verb has. */
export const APPROVAL_HELP = 'id of the approval it needs, where the sandbox was created with --approvals'

/** `--approval` as the SDK takes it. */
export function approvalOf({ approval }: { approval?: string }): { approval?: string } {
  return approval === undefined ? {} : { approval }
}

/** A flag that may be given several times. */
export function repeatedOption(text: string, before: string[] | undefined): string[] {
  return [...before ?? [], text]
}
