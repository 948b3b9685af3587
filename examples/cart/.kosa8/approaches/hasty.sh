#!/bin/sh
# Lowers the threshold: ten pieces get the discount now, and so do nine.
set -eu
sed -i 's/BULK_QUANTITY = 10/BULK_QUANTITY = 8/' src/cart.js
