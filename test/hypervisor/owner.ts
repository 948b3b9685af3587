/** A process that owns a machine until it is killed: boots one, prints its handle, and waits. */
import type { BootConfig } from '../../src/hypervisor/driver.js'
import { makeTcgDriver } from '../conformance/qemu-subject.js'

const config = JSON.parse(process.argv[2] ?? '') as BootConfig
const machine = await makeTcgDriver(config.layersDirectory).boot(config)
process.stdout.write(`${JSON.stringify(machine.handle)}\n`)
// The open QMP connection keeps this process alive.
