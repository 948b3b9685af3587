/**
 * Signatures by Ed25519 keys, as PEM text.
 *
 * Owns: making, reading and checking; where keys lie and what is signed is the caller's. Callers: the SDK signs, the
 * daemon checks.
 */
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, sign, verify, type KeyObject } from 'node:crypto'
import { Kosa8Error } from '../errors/kosa8-error.js'

/** A key pair: PKCS #8 (encrypted with the passphrase, if there is one) and SubjectPublicKeyInfo. */
export interface KeyPair {
  privateKey: string
  publicKey: string
}

/** Makes a key pair. @param passphrase null or empty: the private key is not encrypted */
export function createKeyPair(passphrase: string | null): KeyPair {
  const pair = generateKeyPairSync('ed25519')
  const cipher = passphrase === null || passphrase === '' ? {} : { cipher: 'aes-256-cbc', passphrase }
  return {
    privateKey: pair.privateKey.export({ type: 'pkcs8', format: 'pem', ...cipher }) as string,
    publicKey: pemOf(pair.publicKey),
  }
}

/** True for a private key that needs a passphrase. */
export function isEncryptedKey(pem: string): boolean {
  return pem.includes('BEGIN ENCRYPTED PRIVATE KEY')
}

/**
 * A public key in the one form that is noted and compared.
 * @throws USAGE for anything else, a private key above all: it is never handed on.
 */
export function normalisePublicKey(pem: string): string {
  const hint = 'make a pair with `kosa8 approve keygen` and give the file that ends in .pub'
  if (pem.includes('PRIVATE KEY')) throw new Kosa8Error('USAGE', 'this is a private key: only the public one is given away', { hint })
  try {
    const key = createPublicKey(pem)
    if (key.asymmetricKeyType === 'ed25519') return pemOf(key)
  } catch {
    // Told below, as for a key of another kind.
  }
  throw new Kosa8Error('USAGE', 'this is no Ed25519 public key in PEM form', { hint })
}

/** Short name of a public key: the hash of its DER form, as `SHA256:…`. */
export function fingerprintOf(publicKey: string): string {
  const der = createPublicKey(publicKey).export({ type: 'spki', format: 'der' })
  return `SHA256:${createHash('sha256').update(der).digest('base64url')}`
}

/** A signature and the public key it can be checked with. */
export interface Signature {
  /** Base64. */
  signature: string
  publicKey: string
}

/** Signs a text. @throws USAGE when the key or its passphrase is not right. */
export function signText(text: string, privateKey: string, passphrase: string | null): Signature {
  const key = openPrivateKey(privateKey, passphrase)
  return { signature: sign(null, Buffer.from(text), key).toString('base64'), publicKey: pemOf(createPublicKey(key)) }
}

/** True when the signature was made of exactly this text by the private half of the key. */
export function verifyText(text: string, signature: string, publicKey: string): boolean {
  return verify(null, Buffer.from(text), createPublicKey(publicKey), Buffer.from(signature, 'base64'))
}

function openPrivateKey(pem: string, passphrase: string | null): KeyObject {
  try {
    const key = createPrivateKey({ key: pem, format: 'pem', ...(passphrase === null ? {} : { passphrase }) })
    if (key.asymmetricKeyType === 'ed25519') return key
  } catch {
    throw new Kosa8Error('USAGE', isEncryptedKey(pem) ? 'the passphrase does not open the private key' : 'this is no private key in PEM form')
  }
  throw new Kosa8Error('USAGE', 'this is a private key of another kind than Ed25519')
}

function pemOf(key: KeyObject): string {
  return key.export({ type: 'spki', format: 'pem' }) as string
}
