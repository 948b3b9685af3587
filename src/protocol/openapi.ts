/**
 * The OpenAPI document of the daemon's HTTP API, made from the method table and the stream paths.
 *
 * Owns: how a method becomes an operation, and words where name and schema do not say enough. A copy of the
 * document is kept in `docs/openapi.json`; its test compares the two and can write it.
 */
import { z } from 'zod'
import { sandboxNameSchema } from '../model/ids.js'
import { errorRecordSchema, runEventSchema } from '../model/run.js'
import { approvalIdSchema } from '../model/approval.js'
import { APPROVAL_HEADER } from './approvals.js'
import { GUARDED_CALLS } from './guarded-calls.js'
import { METHODS, type MethodName, type MethodShape } from './methods.js'
import { reservationLineSchema, reservationRequestSchema } from './reservations.js'
import { diffQuerySchema, runEventsQuerySchema, runIdSchema } from './runs.js'
import { guestPathQuerySchema } from './sandboxes.js'
import { VERSION } from './status.js'
import { EXEC_UPGRADE, STREAM_PATHS } from './streams.js'

type Json = Record<string, unknown>

const DESCRIPTION = `The daemon of one host. It listens on a unix socket that only its user may open: daemon.sock in the state folder (~/.kosa8), `
  + 'or where `kosa8 daemon status` says. Client and daemon are of one version: compare `version` of GET /v1/status first. '
  + ''
  + 'Started with --listen it answers on TCP too, to whoever sends its token; calls that need its host are refused there with LOCAL_ONLY. '
  + 'Unknown fields in a request are refused. Try it: curl --unix-socket ~/.kosa8/daemon.sock http://localhost/v1/status'

/** What a method does beyond its name. */
const REMARKS: { [Name in MethodName]?: string } = {
  listen: 'Opens a TCP listener that lasts until the daemon ends. An address other hosts can reach needs TLS.',
  stop: 'The daemon ends; machines and runs go on, and the next daemon finds them.',
  createSandbox: 'Answers when the machine runs. Closing the connection before gives it up.',
  deleteSandbox: 'Destroys the machine and its snapshots.',
  setEgress: 'Changes what a sandbox may reach, from deny or hosts to deny or hosts; connections that are not allowed any more end.',
  createSnapshot: 'Saves memory, processes and disks of the running sandbox, which goes on.',
  restoreSnapshot: 'Puts the sandbox back, under the same name; its current state is lost.',
  startRun: 'Approaches are resolved by the client: scripts and patches travel in the request. Follow the run by its events.',
  approve: 'Hands in the signature of a request, made with the private key of the person whose public key the sandbox was created with.',
  deny: 'Refuses a request, or takes an approval back that was not used.',
  deleteRun: 'Removes the folder of the run and its refs.',
  cancelRun: 'Results that are finished are kept.',
  applyRun: 'Brings the result of one trial into a branch of the repository.',
  reportUsage: 'Used by workers.',
}

/** The document as plain data. */
export function describeApi(): Json {
  const paths: Record<string, Json> = {}
  const add = (path: string, verb: string, operation: Json): void => { paths[openPath(path)] = { ...paths[openPath(path)], [verb.toLowerCase()]: operation } }
  for (const name of Object.keys(METHODS) as MethodName[]) add(METHODS[name].path, METHODS[name].verb, describeMethod(name))
  for (const [path, verb, operation] of describeStreams()) add(path, verb, operation)
  return {
    openapi: '3.1.0',
    info: { title: 'kosa8 daemon', version: VERSION, description: DESCRIPTION, license: { name: 'MIT', identifier: 'MIT' } },
    servers: [
      { url: 'http://localhost', description: 'over the unix socket; the host name does not matter' },
      { url: 'https://{host}:{port}', description: 'over TCP, with the token', variables: { host: { default: 'localhost' }, port: { default: '8443' } } },
    ],
    security: [{}, { token: [] }],
    paths,
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer', description: 'Over TCP only: the content of the file that `kosa8 daemon status` names.' } },
      schemas: { Error: schemaOf(z.object({ error: errorRecordSchema })) },
      responses: { Error: { description: 'What went wrong: go by `code`; `hint` is for people.', content: json({ $ref: '#/components/schemas/Error' }) } },
    },
  }
}

/** The document as it is kept in a file. */
export function renderOpenApi(): string {
  return `${JSON.stringify(describeApi(), null, 2)}\n`
}

function describeMethod(name: MethodName): Json {
  const method: MethodShape = METHODS[name]
  return {
    ...heading(name, REMARKS[name]),
    parameters: [...parametersOf(method.params, 'path'), ...(name in GUARDED_CALLS ? [APPROVAL_PARAMETER] : [])],
    ...(method.verb === 'POST' ? { requestBody: { required: true, content: json(schemaOf(method.body)) } } : {}),
    responses: responses(json(schemaOf(method.response))),
  }
}

/** Of guarded calls. */
const APPROVAL_PARAMETER = {
  name: APPROVAL_HEADER, in: 'header', required: false,
  description: 'Id of an approved request, where the sandbox was created with `approvals`. Without it the call fails with APPROVAL_REQUIRED, whose details name the request.',
  schema: schemaOf(approvalIdSchema),
}

/** The operations whose request or answer is a stream. */
function describeStreams(): [path: string, verb: string, operation: Json][] {
  const name = parametersOf(z.object({ name: sandboxNameSchema }), 'path')
  const run = parametersOf(z.object({ id: runIdSchema }), 'path')
  const reservation = parametersOf(z.object({ id: z.string() }), 'path')
  const file = z.object({ path: z.string().describe('path in the folder of the run; slashes stay') })
  const bytes = { 'application/octet-stream': {} }
  const done = json(schemaOf(METHODS.stop.response))
  const lines = { 'application/x-ndjson': { schema: schemaOf(reservationLineSchema) } }
  const wanted = { required: true, content: json(schemaOf(reservationRequestSchema)) }
  return [
    [STREAM_PATHS.exec, 'GET', {
      ...heading('exec', `Runs a command. Send \`Upgrade: ${EXEC_UPGRADE}\`; the connection then carries frames both ways, the command in the first one.`),
      parameters: [...name, { name: 'Upgrade', in: 'header', required: true, schema: { const: EXEC_UPGRADE } }],
      responses: { 101: { description: 'the connection carries frames from here on' }, 400: { description: 'no exec connection was asked for' } },
    }],
    [STREAM_PATHS.sandboxFile, 'GET', {
      ...heading('readFile'), parameters: [...name, ...parametersOf(guestPathQuerySchema.omit({ mode: true }), 'query')], responses: responses(bytes),
    }],
    [STREAM_PATHS.sandboxFile, 'PUT', {
      ...heading('writeFile'), parameters: [...name, ...parametersOf(guestPathQuerySchema, 'query')],
      requestBody: { required: true, content: bytes }, responses: responses(done),
    }],
    [STREAM_PATHS.runEvents, 'GET', {
      ...heading('runEvents', 'Server-sent events, one JSON object each, until the run has ended; `id:` is the number to go on after.'),
      parameters: [...run, ...parametersOf(runEventsQuerySchema, 'query')], responses: responses({ 'text/event-stream': { schema: schemaOf(runEventSchema) } }),
    }],
    [STREAM_PATHS.runFile, 'GET', { ...heading('runFile'), parameters: [...run, ...parametersOf(file, 'path')], responses: responses(bytes) }],
    [STREAM_PATHS.runDiff, 'GET', {
      ...heading('runDiff', 'Patch from the base to the result of `a`, or from `a` to `b`.'),
      parameters: [...run, ...parametersOf(diffQuerySchema, 'query')], responses: responses({ 'text/x-patch': {} }),
    }],
    [STREAM_PATHS.reserve, 'POST', { ...heading('reserve', 'Used by workers. Held open: closing it gives the memory back.'), requestBody: wanted, responses: responses(lines) }],
    [STREAM_PATHS.adopt, 'POST', {
      ...heading('adoptReservation', 'Used by workers: takes over a reservation.'), parameters: reservation, requestBody: wanted, responses: responses(lines),
    }],
  ]
}

function heading(operationId: string, description?: string): Json {
  const words = operationId.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
  return { operationId, summary: `${words.charAt(0).toUpperCase()}${words.slice(1)}`, ...(description === undefined ? {} : { description }) }
}

function responses(content: Json): Json {
  return { 200: { description: 'done', content }, default: { $ref: '#/components/responses/Error' } }
}

function parametersOf(schema: z.ZodType, place: 'path' | 'query'): Json[] {
  const { properties = {}, required = [] } = schemaOf(schema) as { properties?: Record<string, Json>; required?: string[] }
  return Object.entries(properties).map(([name, property]) => {
    const { description, ...rest } = property
    return { name, in: place, required: required.includes(name), ...(description === undefined ? {} : { description }), schema: rest }
  })
}

/** As it is sent: what a client may leave out is optional. */
function schemaOf(schema: z.ZodType): Json {
  const described: Json = z.toJSONSchema(schema, { io: 'input' })
  delete described['$schema']
  return described
}

function json(schema: Json): Json {
  return { 'application/json': { schema } }
}

/** `:name` as `{name}`, the rest of a path as `{path}`. */
function openPath(path: string): string {
  return path.replace(/:([a-z]+)/g, '{$1}').replace('*', '{path}')
}
