# Sourced by the packaging tests: named checks, counted.
#
# Needs $work, a folder for its output. A test ends with finish_checks.
passed=0 failed=0

# check NAME COMMAND...: the command must succeed; its output is shown when it does not.
check() {
    local name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok    $name"
    else
        failed=$((failed + 1))
        echo "FAIL  $name"
        tail -n 30 "$work/out" | sed 's/^/      /'
    fi
}

# prints WORD COMMAND...: the command must succeed and print the word.
prints() {
    local word=$1
    shift
    "$@" >"$work/printed" && cat "$work/printed" && grep -q -- "$word" "$work/printed"
}

# The closing line, the counts for .ci/run, and the exit code.
finish_checks() {
    [ -z "${CELLM_COUNT_FILE:-}" ] || echo "$passed $failed 0" >"$CELLM_COUNT_FILE"
    echo "$passed passed, $failed failed, 0 skipped"
    [ "$failed" -eq 0 ]
}
