/**
 * The only file that names concrete drivers.
 */
import { FakeDriver, type FakeDriverOptions } from './fake/fake-driver.js'
import { QemuDriver, type QemuDriverOptions } from './qemu/qemu-driver.js'

/** Options of each driver, by its name. */
export interface DriverOptions {
  qemu: QemuDriverOptions
  fake: FakeDriverOptions
}

/** What is made of them. */
export interface Drivers {
  qemu: QemuDriver
  fake: FakeDriver
}

/** Name of a driver. */
export type DriverName = keyof DriverOptions

/** Makes a driver; it starts nothing by itself. */
export function createDriver<Name extends DriverName>(name: Name, options: DriverOptions[Name]): Drivers[Name] {
  return makers[name](options)
}

const makers: { [Name in DriverName]: (options: DriverOptions[Name]) => Drivers[Name] } = {
  qemu: (options) => new QemuDriver(options),
  fake: (options) => new FakeDriver(options),
}
