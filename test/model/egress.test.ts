import { describe, expect, it } from 'vitest'
import { describeBlocked, egressSchema, formatEgress, matchesHost, normaliseHost, parseEgress } from '../../src/model/egress.js'

const hostsOf = (text: string) => {
  const rule = parseEgress(text)
  return rule.kind === 'hosts' ? rule.hosts : []
}

describe('a rule', () => {
  it.each([
    ['deny', 'deny'],
    ['allow', 'allow'],
    ['Registry.Example.', 'registry.example'],
    [' a.example , b.example:8443,a.example', 'a.example,b.example:8443'],
    ['*.Example.org:443', '*.example.org:443'],
    ['*', '*'],
    ['bücher.example', 'xn--bcher-kva.example'],
    ['127.0.0.1:8080', '127.0.0.1:8080'],
    ['0x7f.1', '127.0.0.1'],
    ['[::1]:8080,::1,[2001:DB8::0:1]', '[::1]:8080,::1,2001:db8::1'],
    ['::ffff:127.0.0.1', '127.0.0.1'],
  ])('%j has the normal form %j', (text, normal) => {
    expect(formatEgress(parseEgress(text))).toBe(normal)
    expect(egressSchema.parse(text)).toBe(normal)
    expect(formatEgress(parseEgress(normal))).toBe(normal)
  })

  it.each([
    ['', 'an empty entry in the list of hosts'],
    ['a.example,,b.example', 'an empty entry in the list of hosts'],
    ['deny,a.example', '"deny" in a list of hosts: it stands alone'],
    ['a.example,not a host', '"not a host" is no host'],
    ['https://a.example', '"https://a.example" is no host'],
    ['a.example/path', '"a.example/path" is no host'],
    ['user@a.example', '"user@a.example" is no host'],
    ['*foo.example', '"*foo.example" is no host'],
    ['*.*.example', '"*.*.example" is no host'],
    ['*.127.0.0.1', '"*.127.0.0.1" is no host'],
    ['a..example', '"a..example" is no host'],
    ['[::1', '"[::1" is no host'],
    ['fe80::1%eth0', '"fe80::1%eth0" is no host'],
    ['a.example:0', '"a.example:0" has an impossible port'],
    ['a.example:65536', '"a.example:65536" has an impossible port'],
    ['a.example:http', '"a.example:http" is no host'],
  ])('%j is refused by name', (text, message) => {
    expect(() => parseEgress(text)).toThrow(message)
    expect(egressSchema.safeParse(text).error?.issues[0]?.message).toContain(message)
  })

  it('of more than 256 hosts is refused', () => {
    expect(() => parseEgress(Array.from({ length: 257 }, (_, index) => `h${index}.example`).join(','))).toThrow('more than 256 hosts')
  })
})

describe('matching', () => {
  it.each([
    ['a.example', 'a.example', 443, true],
    ['a.example', 'a.example', 80, true],
    ['a.example', 'a.example', 22, false],
    ['a.example:22', 'a.example', 22, true],
    ['a.example:22', 'a.example', 443, false],
    ['a.example', 'b.a.example', 443, false],
    ['*.a.example', 'b.a.example', 443, true],
    ['*.a.example', 'c.b.a.example', 443, true],
    ['*.a.example', 'a.example', 443, false],
    ['*.a.example', 'xa.example', 443, false],
    ['*', 'anything.example', 443, true],
    ['*', 'anything.example', 8443, false],
    ['*:8443', 'anything.example', 8443, true],
    ['[::1]:8080', '::1', 8080, true],
  ])('%s for %s port %i: %s', (rule, host, port, expected) => {
    expect(matchesHost(hostsOf(rule), host, port)).toBe(expected)
  })
})

describe('a host as a program writes it', () => {
  it.each([
    ['EXAMPLE.org.', 'example.org'], ['[::1]', '::1'], ['2130706433', '127.0.0.1'], ['0177.0.0.1', '127.0.0.1'], ['127.1', '127.0.0.1'],
    ['[::ffff:7f00:1]', '127.0.0.1'], ['exa%6dple.org', null], ['a b', null], ["a';reboot;'.example", null], ['$(reboot).example', null], ['`reboot`.example', null], ['', null], ['.', null], ['a/b', null], ['a#b', null], ['a\\b', null],
    ['x'.repeat(300), null],
  ])('%j is %j', (text, host) => {
    expect(normaliseHost(text)).toBe(host)
  })
})

it('a line about blocked attempts names five and counts the rest', () => {
  const attempts = Array.from({ length: 7 }, (_, index) => ({ target: `h${index}:443`, count: index + 1, lastAt: '', reason: '' }))
  expect(describeBlocked([])).toBe('')
  expect(describeBlocked(attempts)).toBe('blocked: h0:443 (1), h1:443 (2), h2:443 (3), h3:443 (4), h4:443 (5) and 2 more')
})
