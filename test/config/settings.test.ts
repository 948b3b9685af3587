import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { childEnvironment, readSettings } from '../../src/config/environment.js'
import { resolveProject } from '../../src/config/project-defaults.js'
import { parseProjectFile } from '../../src/config/project-file.js'
import { findRepositoryRoot } from '../../src/config/repository.js'
import { parseDurationMs, parseMemoryMib } from '../../src/config/units.js'
import { temporaryFolder } from '../daemon-server/serve.js'

describe('settings', () => {
  it('are in the user\'s own folder unless the environment says otherwise', () => {
    expect(readSettings({}).home).toMatch(/\/\.kosa8$/)
    expect(readSettings({ KOSA8_HOME: '/srv/k', REDIS_URL: 'redis://h', NO_COLOR: '1', CI: 'true' })).toMatchObject({
      home: '/srv/k', imagesDirectory: '/srv/k/images', socketPath: '/srv/k/daemon.sock', redisUrl: 'redis://h', noColor: true, isCi: true,
    })
    expect(readSettings({ KOSA8_IMAGES_DIR: '/srv/i', CI: 'false' })).toMatchObject({ imagesDirectory: '/srv/i', isCi: false })
  })

  it('refuse a relative path, and an address without repeating its password', () => {
    expect(() => readSettings({ KOSA8_HOME: 'here' })).toThrow('KOSA8_HOME must be an absolute path, not "here"')
    expect(readSettings({ HOME: '/h', KOSA8_URL: 'https://Build.example:8443/', KOSA8_TOKEN: ' t\n' }).remote).toEqual({ url: 'https://build.example:8443', token: 't' })
    expect(() => readSettings({ KOSA8_URL: 'http://localhost:1' })).toThrow('KOSA8_URL is set, and its token is not')
    expect(() => readSettings({ KOSA8_URL: 'http://localhost:1', KOSA8_TOKEN_FILE: '/nonexistent' })).toThrow(/^KOSA8_TOKEN_FILE cannot be read/)
    expect(() => readSettings({ REDIS_URL: 'http://:pass@h' })).toThrow(/^REDIS_URL must begin with redis:\/\/, rediss:\/\/ or unix:\/\/$/)
  })

  it('take a file of certificates or of a token from the current folder too, and hand certificates on by their whole path', () => {
    const environment = { NODE_EXTRA_CA_CERTS: 'ca.pem', SSL_CERT_FILE: '/etc/all.pem' }
    const settings = readSettings(environment)
    expect(settings.caBundle).toBe(path.resolve('ca.pem'))
    expect(childEnvironment(settings, environment)).toMatchObject({ NODE_EXTRA_CA_CERTS: path.resolve('ca.pem'), SSL_CERT_FILE: '/etc/all.pem' })
    expect(() => readSettings({ KOSA8_URL: 'http://localhost:1', KOSA8_TOKEN_FILE: 'package.json' })).toThrow(/^the text in KOSA8_TOKEN_FILE is no token/)
    expect(() => readSettings({ KOSA8_URL: 'http://localhost:1', KOSA8_TOKEN: 'a\nb' })).toThrow(/^KOSA8_TOKEN is no token/)
  })

  it('find a socket path that fits, however deep the home', () => {
    const deep = `/srv/${'d'.repeat(120)}`
    const { socketPath } = readSettings({ KOSA8_HOME: deep })
    expect(Buffer.byteLength(socketPath)).toBeLessThan(108)
    expect(readSettings({ KOSA8_HOME: deep }).socketPath).toBe(socketPath)
    expect(readSettings({ KOSA8_HOME: `${deep}e` }).socketPath).not.toBe(socketPath)
  })

  it('reach a process we start', () => {
    const settings = readSettings({ KOSA8_HOME: '/srv/k', KOSA8_IMAGES_DIR: '/srv/i' })
    expect(readSettings(childEnvironment(settings, {}))).toEqual(settings)
  })
})

describe('units', () => {
  it.each([['512M', 512], ['2G', 2048], ['1.5GiB', 1536], ['2gb', 2048], ['512', null], ['0M', null], ['0.3M', null], ['-1G', null], ['x', null]])('size %s is %s MiB', (text, mib) => {
    expect(parseMemoryMib(text)).toBe(mib)
  })

  it.each([['30m', 1_800_000], ['90s', 90_000], ['1h30m', 5_400_000], ['1.5s', 1500], ['250ms', 250], ['5', null], ['0s', null], ['m', null], ['-3s', null]])('duration %s is %s ms', (text, ms) => {
    expect(parseDurationMs(text)).toBe(ms)
  })
})

describe('a project', () => {
  it('without kosa8.yaml runs npm test in a node image where a package has tests', async () => {
    const folder = await temporaryFolder()
    await writeFile(path.join(folder, 'package.json'), '{"scripts":{"test":"vitest run"}}')
    expect(await resolveProject({}, folder)).toEqual({
      image: 'node', memoryMib: 1024, cpus: 1, egress: 'deny', setup: null, timeoutMs: 1_800_000, matrix: {}, repeats: 1,
      test: { run: 'npm test', results: [], timeoutMs: 600_000, files: [] },
    })
  })

  it.each([
    [undefined, 'deny'], ['allow', 'allow'], ['b.example, A.example', 'b.example,a.example'], [['a.example', '*.b.example:8443'], 'a.example,*.b.example:8443'],
  ])('with egress %j reaches %j', async (egress, rule) => {
    const parsed = parseProjectFile(egress === undefined ? '' : `egress: ${JSON.stringify(egress)}`)
    expect((await resolveProject(parsed, await temporaryFolder())).egress).toBe(rule)
  })

  it.each([
    ['what npm init writes', '{"scripts":{"test":"echo \\"Error: no test specified\\" && exit 1"}}'], ['no script', '{}'],
    ['an empty script', '{"scripts":{"test":" "}}'], ['something that is no JSON', 'x'], ['null', 'null'],
  ])('whose package.json has %s has no test command', async (_what, text) => {
    const folder = await temporaryFolder()
    await writeFile(path.join(folder, 'package.json'), text)
    expect(await resolveProject({}, folder)).toMatchObject({ image: 'node', test: null })
  })

  it('without a package.json takes the base image', async () => {
    expect(await resolveProject({}, await temporaryFolder())).toMatchObject({ image: 'base', test: null })
  })

  it('may give its test command as a text, or with its settings', async () => {
    const folder = await temporaryFolder()
    expect((await resolveProject({ test: 'make check' }, folder)).test).toEqual({ run: 'make check', results: [], timeoutMs: 600_000, files: [] })
    const test = { run: 'make check', results: 'out/*.xml', timeout: '90s', files: ['spec/**'] }
    expect((await resolveProject({ test }, folder)).test).toEqual({ run: 'make check', results: ['out/*.xml'], timeoutMs: 90_000, files: ['spec/**'] })
  })
})

describe('a repository', () => {
  it('is found from a folder inside it, also where .git is a file', async () => {
    const folder = await temporaryFolder()
    await mkdir(path.join(folder, 'a', 'b'), { recursive: true })
    await writeFile(path.join(folder, '.git'), 'gitdir: elsewhere')
    expect(await findRepositoryRoot(path.join(folder, 'a', 'b'))).toBe(await findRepositoryRoot(folder))
  })

  it('that is none is refused with what to do', async () => {
    const folder = await temporaryFolder()
    await expect(findRepositoryRoot(folder)).rejects.toMatchObject({
      code: 'REPOSITORY_INVALID', message: `${folder} is not in a git repository`, hint: 'give one with --repo, or make one with `git init` and a first commit',
    })
    await expect(findRepositoryRoot(path.join(folder, 'nothing'))).rejects.toMatchObject({ code: 'REPOSITORY_INVALID' })
  })
})
