/** `kosa8 completion bash|zsh|fish`: a script for the shell, made of the verbs and flags there are. */
import type { Command } from 'commander'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { CommandTools } from './host.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** What may be typed after `path`, e.g. "checkpoint". */
interface Words {
  path: string
  words: string[]
}

const SHELLS: Record<string, (all: Words[]) => string> = { bash: bashScript, zsh: zshScript, fish: fishScript }

/** Adds the verb. */
export function addCompletion(cli: Cli, program: Command): void {
  defineVerb(cli, program, 'completion <shell>', {
    summary: 'Print the completion script for bash, zsh or fish.',
    examples: ['kosa8 completion bash > ~/.local/share/bash-completion/completions/kosa8', 'kosa8 completion fish > ~/.config/fish/completions/kosa8.fish'],
  }, (tools, args, options) => print(tools, program, args, options))
}

async function print({ output }: CommandTools, program: Command, [shell]: string[], options: CommonOptions): Promise<number> {
  const write = Object.hasOwn(SHELLS, shell as string) ? SHELLS[shell as string] : undefined
  if (write === undefined) throw new Kosa8Error('USAGE', `there is no completion for ${shell}`, { hint: 'use bash, zsh or fish' })
  const words = collectWords(program, [])
  if (options.json === true) output.printJson(words)
  else output.print(write(words))
  return 0
}

function collectWords(command: Command, trail: string[]): Words[] {
  const flags = command.options.flatMap(({ short, long }) => [short, long]).filter((flag) => flag !== undefined)
  const words = [...command.commands.map((each) => each.name()), ...flags, '--help']
  return [{ path: trail.join(' '), words }, ...command.commands.flatMap((each) => collectWords(each, [...trail, each.name()]))]
}

/** Cases over the verbs typed so far; the longest that fits comes first. */
function casesOf(all: Words[]): string {
  const cases = all.filter(({ path }) => path !== '').sort((a, b) => b.path.length - a.path.length)
  const lines = cases.map(({ path, words }) => `    "${path}"|"${path} "*) echo "${words.join(' ')}" ;;`)
  return [...lines, `    *) echo "${all[0]?.words.join(' ') ?? ''}" ;;`].join('\n')
}

function bashScript(all: Words[]): string {
  return `_kosa8_words() {
  case "$1" in
${casesOf(all)}
  esac
}
_kosa8() {
  local typed="\${COMP_WORDS[*]:1:COMP_CWORD-1}" current="\${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=($(compgen -W "$(_kosa8_words "$typed")" -- "$current"))
}
complete -o default -F _kosa8 kosa8
`
}

function zshScript(all: Words[]): string {
  return `#compdef kosa8
_kosa8_words() {
  case "$1" in
${casesOf(all)}
  esac
}
_kosa8() {
  local typed="\${(j: :)words[2,CURRENT-1]}"
  compadd -- \${(z)$(_kosa8_words "$typed")} || _files
}
compdef _kosa8 kosa8
`
}

function fishScript(all: Words[]): string {
  return `function __kosa8_words
  set -l typed (commandline -opc)[2..-1]
  switch "$typed"
${all.filter(({ path }) => path !== '').sort((a, b) => b.path.length - a.path.length)
    .map(({ path, words }) => `    case '${path}' '${path} *'\n      string split ' ' '${words.join(' ')}'`).join('\n')}
    case '*'
      string split ' ' '${all[0]?.words.join(' ') ?? ''}'
  end
end
complete -c kosa8 -a '(__kosa8_words)'
`
}
