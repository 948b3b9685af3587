/**
 * The host's side of the guest agent as the rest of kosa8 sees it.
 *
 * Owns: the contract of a session. `agent-session.ts` implements it over a byte channel; the wire
 * format is in guest/PROTOCOL.md. A session ends with its channel; a restored machine gets a new one.
 */
import type { Duplex, Readable, Writable } from 'node:stream'

/** A command to run in the guest, without a shell. */
export interface GuestCommand {
  argv: string[]
  /** Added to the agent's small default environment (PATH, HOME, LC_CTYPE). */
  env?: Record<string, string> | undefined
  /** Absolute path in the guest; `/` by default. */
  cwd?: string | undefined
  /** User name or number in the guest; root by default. */
  user?: string | undefined
  /** A terminal of this size; standard error then arrives on stdout. */
  pty?: { rows: number; columns: number } | undefined
  /** True: `stdin` is writable. False (default): standard input is empty and closed. */
  stdin?: boolean | undefined
}

/** Exactly one of the two is set. */
export interface GuestExit {
  code: number | null
  signal: number | null
}

/** A process that was still there when its command's group was closed. */
export interface LeftoverProcess {
  pid: number
  /** Bounded, control characters removed. */
  name: string
}

/** A running command. Output is flow-controlled: what is not read is not sent. */
export interface GuestProcess {
  readonly stdin: Writable | null
  readonly stdout: Readable
  readonly stderr: Readable
  /** Settles when the first process ends, whoever still holds its pipes. Rejects GUEST_UNREACHABLE. */
  readonly exited: Promise<GuestExit>
  /** Sends a signal to every process of the command. */
  signal(signal: number): Promise<void>
  resize(size: { rows: number; columns: number }): Promise<void>
  /**
   * Ends what is left: kills every process of the command (also those in sessions of their own), closes
   * its pipes, ends both output streams.
   * @returns the processes that were still there.
   */
  close(): Promise<LeftoverProcess[]>
  /**
   * Lets go of a command that has ended: processes it left go on, and nothing of theirs is read any more.
   * Every command must be closed or released, else the guest keeps a place for it.
   */
  release(): void
}

/** What makes a clone a machine of its own. */
export interface GuestIdentity {
  hostname: string
  /** 32 hexadecimal digits. */
  machineId: string
  /** Unique to each restore; the guest finds it in /run/kosa8/clone-id. */
  cloneId: string
  /** 64 bytes of fresh randomness for the guest's kernel. */
  entropy: Uint8Array
}

/** What the guest confirmed. Every field must be true for the clone to be handed out. */
export interface IdentityReport {
  clockSet: boolean
  entropyAdded: boolean
  reseeded: boolean
  hostnameSet: boolean
  machineIdSet: boolean
}

/** The way out of a guest without a network card: a port on its loopback, whose connections the host takes. */
export interface GuestGateway {
  readonly port: number
  /** A program of the guest has connected. Whoever gets the connection bounds what comes of it. */
  onConnection(connection: Duplex): void
}

/** A conversation with the agent of one machine. Every method rejects GUEST_UNREACHABLE once it has ended. */
export interface GuestSession {
  /** Settles when the session has ended, with the reason; never rejects. */
  readonly ended: Promise<string>
  exec(command: GuestCommand): Promise<GuestProcess>
  /**
   * Streams a regular file out. Links are not followed in any part of the path.
   * @throws LIMIT_EXCEEDED beyond `bytesMax`; GUEST_COMMAND_FAILED when there is no such regular file.
   */
  readFile(path: string, options: { bytesMax: number }): Promise<Readable>
  /** Writes a file in full, then renames it into place; missing folders are made. */
  writeFile(path: string, content: Readable | Uint8Array | string, options?: { mode?: number; user?: string }): Promise<void>
  /**
   * Lists what lies below a folder, links not followed, .git folders and `node_modules` not entered.
   * At most `entriesMax`; the last entry then has kind "truncated".
   */
  listFiles(root: string, options: { entriesMax: number }): Promise<GuestFileEntry[]>
  /** Stops every process but the agent, and leaves the channel at a frame boundary; for a checkpoint. */
  quiesce(): Promise<void>
  /** Lets the processes go on; the clock is moved on by as long as the machine stood still. */
  thaw(): Promise<void>
  /** Sets clock, randomness and names while everything is still frozen, then thaws. */
  repairIdentity(identity: GuestIdentity): Promise<IdentityReport>
  /** Programs of the guest have a way out; commands find it by HTTP_PROXY and the like. */
  readonly hasGateway: boolean
  /**
   * Opens the way out, or closes it (null), which resets what is open. Nothing is asked of a guest that is as wanted.
   * @returns true when the guest's port had to be opened or closed
   * @throws GUEST_COMMAND_FAILED when the guest cannot listen there.
   */
  setGateway(gateway: GuestGateway | null): Promise<boolean>
  /** Ends the session; commands in the guest go on, their output is drained. Whoever waits is told `reason`. */
  end(reason?: string): void
}

/** One path below a listed folder. */
export interface GuestFileEntry {
  path: string
  kind: 'file' | 'folder' | 'link' | 'other' | 'truncated'
  sizeBytes: number
}
