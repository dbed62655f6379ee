# Runs after the process that it watched: ends what it left behind, and removes its folders.
# $1: the group of its processes; then its folders.
group=$1
shift
any() { kill -s 0 -- "-$group" 2>/dev/null; }
# In good order first: a database server takes its shared memory along. Who is stopped hears it too.
kill -s INT -- "-$group" 2>/dev/null
kill -s CONT -- "-$group" 2>/dev/null
tries=0
while any && [ "$tries" -lt 100 ]; do
  [ "$tries" = 20 ] && kill -s KILL -- "-$group" 2>/dev/null
  tries=$((tries + 1))
  sleep 0.05
done
# Somebody may write there until its end.
rm -rf -- "$@" 2>/dev/null || { sleep 1; rm -rf -- "$@"; }
