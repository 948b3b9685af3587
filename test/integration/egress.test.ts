/**
 * Real machines that may reach one server of this test, and nothing else: through everything that happens to a sandbox.
 */
import { createServer, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { once } from 'node:events'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { runDocumentSchema } from '../../src/model/run.js'
import { Kosa8Client } from '../../src/sdk/client.js'
import { ADDER_FILES } from '../helpers/adder.js'
import { Kosa8, killHard } from '../helpers/kosa8.js'

let kosa8: Kosa8
let server: Server
let listed: string
/** Answers to `/open` that have begun and do not end. */
const open: ServerResponse[] = []
const sockets = new Set<Socket>()

beforeAll(async () => {
  server = createServer((request, response) => {
    if (request.url !== '/open') response.end(`answer to ${request.url}\n`)
    else {
      open.push(response)
      response.write('begun\n')
    }
  })
  server.on('connection', (socket: Socket) => sockets.add(socket))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  listed = `127.0.0.1:${(server.address() as AddressInfo).port}`
  kosa8 = await Kosa8.open()
  await kosa8.ask(['create', 'box', '--mem', '192M', '--egress', listed])
}, 200_000)

afterAll(async () => {
  await kosa8.close()
  for (const socket of sockets) socket.destroy()
  server.close()
})

/** By the proxy, also to an address that means the guest itself elsewhere. */
const CURL = 'curl -sS -m 60 --noproxy "" '
const inGuest = async (name: string, script: string): Promise<string> => {
  const { stdout, stderr } = await kosa8.type(['exec', name, '--', 'sh', '-c', script])
  return stdout + stderr
}
const fetchListed = async (name: string, path: string): Promise<string> => inGuest(name, `${CURL} http://${listed}/${path}`)
const show = async (name: string): Promise<{ egress: string; blocked: { target: string; count: number }[] }> =>
  JSON.parse(await kosa8.ask(['egress', name, '--json'])) as never

it('a machine reaches what is listed and nothing else, and what was blocked is shown', async () => {
  expect(await fetchListed('box', 'one')).toBe('answer to /one\n')
  const said = await inGuest('box', `${CURL} http://other.example/; ${CURL} https://other.example/; ls /sys/class/net
    curl -sS -m 5 --noproxy "*" http://192.0.2.1/; bash -c 'echo > /dev/udp/192.0.2.1/53'; getent hosts other.example || echo no name`)
  expect(said).toContain(`kosa8: blocked: other.example:80: it is not on the list. To allow it, on the host: kosa8 egress box '${listed},other.example'`)
  expect(said).toContain('CONNECT tunnel failed, response 403')
  expect(said).toContain('\nlo\n')
  expect(said).toMatch(/Couldn't connect|unreachable/i)
  expect(said).toContain('/dev/udp/192.0.2.1/53: Network is unreachable')
  expect(said).toContain('no name')
  expect(await show('box')).toMatchObject({ egress: listed, blocked: [{ target: 'other.example:443', count: 1 }, { target: 'other.example:80', count: 1 }] })
})

it('a rewind with a connection open ends it, and the next goes through; a clone has the same rule (invariant 8)', async () => {
  const begun = (): string => `setsid ${CURL} -N http://${listed}/open > /root/open 2>&1 & until grep -q begun /root/open; do sleep 0.1; done`
  await inGuest('box', begun())
  await kosa8.ask(['checkpoint', 'box'])
  await kosa8.ask(['rewind', 'box', '--yes'])
  expect(await inGuest('box', 'while pgrep curl > /dev/null; do sleep 0.1; done; cat /root/open')).toMatch(/^begun\ncurl: \(56\) .*reset/i)
  expect(await fetchListed('box', 'after')).toBe('answer to /after\n')
  const client = new Kosa8Client({ home: kosa8.paths.home })
  const [clone] = await client.sandbox('box').fork({ names: ['twin'] })
  expect(clone?.error).toBeNull()
  expect(await fetchListed('twin', 'twin')).toBe('answer to /twin\n')
  expect(await inGuest('twin', `${CURL} http://other.example/`)).toContain('kosa8: blocked: other.example:80')
  expect(await show('twin')).toMatchObject({ egress: listed, blocked: [{ target: 'other.example:80', count: 1 }] })
  await kosa8.ask(['rm', 'twin'])
})

it('the rule is changed while it runs, outlives the daemon and a rewind, and a network card cannot be had', async () => {
  await kosa8.ask(['egress', 'box', 'deny'])
  expect(await inGuest('box', `echo "proxy: $HTTP_PROXY"; ${CURL} -x http://127.0.0.1:880 http://${listed}/`)).toMatch(/^proxy: \ncurl: \(7\)/)
  await kosa8.ask(['rewind', 'box', '--yes'])
  expect(await fetchListed('box', 'x')).toMatch(/^curl: \(7\)/)
  await kosa8.ask(['egress', 'box', `${listed},*.example.org`])
  await killHard(await kosa8.daemon())
  expect(await fetchListed('box', 'again')).toBe('answer to /again\n')
  expect(await show('box')).toMatchObject({ egress: `${listed},*.example.org` })
  expect(await kosa8.type(['egress', 'box', 'allow'])).toMatchObject({ status: 2, stderr: expect.stringContaining('egress cannot change to allow') as string })
  await kosa8.ask(['rm', 'box'])
})

it('trials have the rule of their run, and the report says what was blocked', async () => {
  const approach = `${CURL} http://${listed}/from-a-trial > got.txt; for i in 1 2; do ${CURL} http://other.example/; done\n`
  const repository = await kosa8.makeRepository('adder', ADDER_FILES, { fetch: approach })
  const { stdout, stderr } = await kosa8.type(['fork', '--approaches', 'fetch', '--egress', listed, '--json'], { cwd: repository })
  const document = runDocumentSchema.parse(JSON.parse(stdout))
  expect(document.trials[0], stderr).toMatchObject({ state: 'completed', verdict: 'same', notes: ['blocked: other.example:80 (2)'], diff: { files: 1 } })
  expect(await kosa8.ask(['diff', document.id, 'fetch'], { cwd: repository })).toContain('+answer to /from-a-trial')
  expect(await kosa8.ask(['report', document.id], { cwd: repository })).toContain('blocked: other.example:80 (2)')
})
