package testserver

import (
	"fmt"
	"os/exec"
	"testing"
)

// pythonProgram is the interpreter of the distribution. Another one on PATH may lack the modules.
const pythonProgram = "/usr/bin/python3"

// RequirePython returns the path of a Python interpreter that has Celery and its modules for Redis
// and msgpack. Without it the test is skipped, see the package comment.
func RequirePython(tb testing.TB) string {
	tb.Helper()
	if out, err := exec.Command(pythonProgram, "-c", "import celery, redis, msgpack").CombinedOutput(); err != nil {
		giveUp(tb, fmt.Errorf("%w: Celery (Debian: apt-get install python3-celery python3-redis python3-msgpack): %w: %.200s", ErrMissing, err, out))
	}
	return pythonProgram
}
