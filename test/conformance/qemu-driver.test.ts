import { describeDriver } from './driver.js'
import { makeQemuSubject } from './qemu-subject.js'

describeDriver('qemu', makeQemuSubject)
