import { describe, it } from 'node:test'
import assert from 'node:assert/strict'
import { lineTotal, shipping, subtotal, total } from '../src/cart.js'

describe('line total', () => {
  it('is price times quantity', () => assert.equal(lineTotal({ price: 250, quantity: 3 }), 750))
  it('has no discount below ten', () => assert.equal(lineTotal({ price: 100, quantity: 9 }), 900))
  it('has 10 % off from ten on', () => assert.equal(lineTotal({ price: 100, quantity: 10 }), 900))
  it('has 10 % off above ten', () => assert.equal(lineTotal({ price: 100, quantity: 20 }), 1800))
})

describe('order', () => {
  const small = [{ price: 250, quantity: 2 }]
  const large = [{ price: 1000, quantity: 10 }]
  it('adds up its lines', () => assert.equal(subtotal([...small, { price: 100, quantity: 1 }]), 600))
  it('pays shipping when small', () => assert.equal(shipping(small), 490))
  it('ships free when large', () => assert.equal(shipping(large), 0))
  it('costs nothing when empty', () => assert.equal(total([]), 0))
  it('totals a bulk order', () => assert.equal(total(large), 9000))
})
