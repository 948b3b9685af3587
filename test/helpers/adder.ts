/** A repository with a small fault, two tests that print TAP, and three ways to deal with it. */

/** The sample's files; `adds` fails, `doubles` passes. */
export const ADDER_FILES: Record<string, string> = {
  'add.sh': 'add() { echo $(($1 - $2)); }\ntwice() { echo $(($1 + $1)); }\n',
  'test/run.sh': `. ./add.sh
echo TAP version 13
echo 1..2
if [ "$(add 2 3)" = 5 ]; then echo "ok 1 - adds"; else echo "not ok 1 - adds"; fi
if [ "$(twice 4)" = 8 ]; then echo "ok 2 - doubles"; else echo "not ok 2 - doubles"; fi
`,
  'kosa8.yaml': 'image: base\nmem: 192M\ntest: sh test/run.sh\n',
}

/** Mends the fault. */
export const FIX = "sed -i 's/$1 - $2/$1 + $2/' add.sh\n"
/** Mends it and breaks the other function. */
export const HASTY = `${FIX}sed -i 's/(($1 + $1))/(($1))/' add.sh\n`
/** Makes the test agree with the fault. */
export const CHEAT = "sed -i 's/= 5/= -1/' test/run.sh\n"
