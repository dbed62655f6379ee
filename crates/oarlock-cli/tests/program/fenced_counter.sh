# Adds one to a counter that refuses old fencing tokens. Its history is its state: a line for each access, with what was
# done (r or w), the token that was shown, and the value after it. Exits with 9 if the token was refused,
# which the file `refused` keeps.
# Usage: fenced_counter.sh HISTORY
history=$1

access() { # r | w VALUE
    (
        flock 9
        read -r _ newest value <<END
$(tail -n 1 "$history")
END
        if [ "$OARLOCK_TOKEN" -lt "$newest" ]; then
            echo "$OARLOCK_TOKEN after $newest" >>refused
            exit 9
        fi
        echo "$1 $OARLOCK_TOKEN ${2:-$value}" >>"$history"
        echo "$value"
    ) 9>>"$history.flock"
}

value=$(access r) || exit 9
# Long enough to be stopped or killed in the middle.
sleep 0.05
access w $((value + 1)) >/dev/null
