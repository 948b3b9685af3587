#!/bin/sh
# A database in the middle of a transaction: save, destroy, rewind, commit on the same connection.
#
#   sh examples/undo-database/show.sh [SANDBOX]
#
# Needs `kosa8` on the path (or KOSA8="node …/dist/src/cli/main.js") and a network. Takes some minutes, most of them for
# installing PostgreSQL in the sandbox; one that is there already is taken as it is.
set -eu
box=${1:-undo-database}

kosa8() { ${KOSA8:-kosa8} "$@"; }
say() { printf '\n# %s\n' "$*"; }
# A shell script in the sandbox, from standard input.
inside() { kosa8 exec "$box" -- sh -s; }

if ! kosa8 ls | grep -q "^$box "; then
  say 'a sandbox with PostgreSQL'
  kosa8 create "$box" --mem 768M --egress allow
  inside << 'END' > /dev/null
set -e
apt-get -q update
DEBIAN_FRONTEND=noninteractive apt-get -qy --no-install-recommends install postgresql 2>&1
END
fi

say 'one connection changes two accounts and does not commit; another waits for its lock'
inside << 'END'
cd /run
cluster=$(pg_lsclusters -h | cut -d' ' -f1,2)
pg_ctlcluster $cluster start 2> /dev/null
until su postgres -c 'psql -qc "select 1"' > /dev/null 2>&1; do sleep 0.2; done
su postgres -c 'psql -q' << 'SQL'
set client_min_messages = error;
drop table if exists account;
create table account (name text primary key, amount int);
insert into account values ('ann', 100), ('bob', 100);
SQL
rm -f typed shown waiting; mkfifo -m 666 typed
# A shell that stays keeps the pipe open: psql waits for what is typed next.
setsid sh -c 'sleep 1000000 > typed & exec su postgres -c "psql -tA" < typed > shown 2>&1' > /dev/null 2>&1 < /dev/null &
cat > typed << 'SQL'
begin;
update account set amount = amount - 30 where name = 'ann';
update account set amount = amount + 30 where name = 'bob';
select 'connection ' || pg_backend_pid() || ' sees ' || string_agg(name || ' ' || amount, ', ') from account;
SQL
until grep -q sees shown; do sleep 0.2; done; cat shown
setsid su postgres -c "psql -c \"update account set amount = amount + 1 where name = 'ann' returning amount\"" \
  > waiting 2>&1 < /dev/null &
until su postgres -c 'psql -tAc "select count(*) from pg_locks where not granted"' | grep -qx 1; do sleep 0.2; done
echo 'another connection waits'
END

say 'save'
kosa8 checkpoint "$box" --label 'in the transaction'

say 'destroy'
inside << 'END'
rm -rf /var/lib/postgresql /usr/lib/postgresql
pkill -9 postgres; pkill -9 psql; rm /run/typed
su postgres -c 'psql -c "select * from account"' 2>&1 | head -n 2
END

say 'rewind'
kosa8 rewind "$box" --yes

say 'the same connection commits, and the one that waited goes on'
inside << 'END'
cd /run
echo "commit; select 'connection ' || pg_backend_pid() || ' has committed';" > typed
until grep -q committed shown && [ -s waiting ]; do sleep 0.2; done
tail -n 2 shown; cat waiting
su postgres -c 'psql -c "select * from account order by name"'
END
echo "remove it with: kosa8 rm $box"
