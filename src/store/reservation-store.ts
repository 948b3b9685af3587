/**
 * Reservations on disk, so that a restarted daemon knows what it has promised.
 *
 * Given to the ledger as its memory; written by the daemon only.
 */
import type { ReservationId } from '../model/ids.js'
import { reservationSchema, type Reservation } from '../model/reservation.js'
import type { Paths } from './paths.js'
import { RecordFolder } from './records.js'

/** Records of reservations, `reservations/<id>.json`. */
export class ReservationStore {
  private readonly records: RecordFolder<Reservation>

  constructor(paths: Paths) {
    this.records = new RecordFolder<Reservation>(paths.reservations, reservationSchema)
  }

  async save(reservation: Reservation): Promise<void> {
    await this.records.write(reservation.id, reservation)
  }

  async remove(id: ReservationId): Promise<void> {
    await this.records.remove(id)
  }

  async list(): Promise<Reservation[]> {
    return this.records.list()
  }
}
