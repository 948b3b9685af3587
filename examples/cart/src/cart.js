/** Prices are in cents. Ten or more of one article get 10 % off; orders from 50.00 ship free. */
const BULK_QUANTITY = 10
const FREE_SHIPPING_FROM = 5000
const SHIPPING = 490

export function lineTotal({ price, quantity }) {
  const discount = quantity > BULK_QUANTITY ? 0.1 : 0
  return Math.round(price * quantity * (1 - discount))
}

export function subtotal(lines) {
  return lines.reduce((sum, line) => sum + lineTotal(line), 0)
}

export function shipping(lines) {
  if (lines.length === 0) return 0
  return subtotal(lines) >= FREE_SHIPPING_FROM ? 0 : SHIPPING
}

export function total(lines) {
  return subtotal(lines) + shipping(lines)
}
