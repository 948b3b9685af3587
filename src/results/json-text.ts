/**
 * Looking into JSON of unknown shape. Used by the JSON parsers of this folder.
 */

export type JsonObject = Record<string, unknown>

/** The parsed object, or null when the text is no JSON object. */
export function parseJsonObject(text: string): JsonObject | null {
  try {
    return asObject(JSON.parse(text))
  } catch {
    return null
  }
}

export function asObject(value: unknown): JsonObject | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value as JsonObject : null
}

export function asArray(value: unknown): unknown[] {
  return Array.isArray(value) ? value : []
}

/** The string, or an empty one. */
export function asText(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

/** A duration in milliseconds, or null when the value is none. */
export function asMilliseconds(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 && value < 1e12 ? value : null
}
