/**
 * `kosa8 completion bash|zsh|fish`: a script for the shell, which asks `kosa8 complete` what may stand where the cursor is.
 *
 * Owns: the scripts. Does not own what they offer (`complete.ts`).
 */
import type { Command } from 'commander'
import { Kosa8Error } from '../errors/kosa8-error.js'
import type { CommandTools } from './host.js'
import { defineVerb, type Cli, type CommonOptions } from './verb.js'

/** Where nothing is offered, the shell offers files. A candidate that ends with a colon goes on without a blank. */
const SCRIPTS: Record<string, string> = {
  bash: `_kosa8() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("$(printf %q "\${line%%$'\\t'*}")")
  done < <(kosa8 complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [[ "\${COMPREPLY[0]}" == *: ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -F _kosa8 kosa8
`,
  zsh: `#compdef kosa8
_kosa8() {
  local -a found items
  local line
  found=("\${(@f)$(kosa8 complete -- "\${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -z "\${found[1]}" ]]; then
    _files
    return
  fi
  for line in "\${found[@]}"; do
    line="\${line//:/\\\\:}"
    items+=("\${line/$'\\t'/:}")
  done
  if [[ "\${found[1]%%$'\\t'*}" == *: ]]; then _describe kosa8 items -S ''; else _describe kosa8 items; fi
}
if [[ "\${funcstack[1]}" == _kosa8 ]]; then _kosa8 "$@"; else compdef _kosa8 kosa8; fi
`,
  fish: `function __kosa8_complete
  set -l typed (commandline -opc)[2..-1]
  set -l current (commandline -ct)
  set -l found (kosa8 complete -- $typed "$current" 2>/dev/null)
  if test (count $found) -gt 0
    printf '%s\\n' $found
  else
    __fish_complete_path "$current"
  end
end
complete -c kosa8 -f -a '(__kosa8_complete)'
`,
}

/** Shells there is a script for. */
export const COMPLETED_SHELLS = Object.keys(SCRIPTS)

/** Adds the verb. */
export function addCompletion(cli: Cli, program: Command): void {
  defineVerb(cli, program, 'completion <shell>', {
    summary: 'Print the completion script for bash, zsh or fish.',
    examples: [
      'kosa8 completion bash > ~/.local/share/bash-completion/completions/kosa8',
      'kosa8 completion zsh > "${fpath[1]}/_kosa8"',
      'kosa8 completion fish > ~/.config/fish/completions/kosa8.fish',
    ],
  }, print)
}

async function print({ output }: CommandTools, [shell]: string[], options: CommonOptions): Promise<number> {
  const script = Object.hasOwn(SCRIPTS, shell as string) ? SCRIPTS[shell as string] as string : undefined
  if (script === undefined) throw new Kosa8Error('USAGE', `there is no completion for ${shell}`, { hint: 'use bash, zsh or fish' })
  if (options.json === true) output.printJson({ shell, script })
  else output.print(script)
  return 0
}
