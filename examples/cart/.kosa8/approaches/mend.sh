#!/bin/sh
# Mends the fault where it is.
set -eu
sed -i 's/quantity > BULK_QUANTITY/quantity >= BULK_QUANTITY/' src/cart.js
