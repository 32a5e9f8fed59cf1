package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// errHeld: another server holds the lock. The lock functions of each platform return it.
var errHeld = errors.New("held by another server")

// lockTimeout limits the time that Open waits for a lock, since [Address] takes it for a moment to
// see whether a server runs.
const lockTimeout = 200 * time.Millisecond

// lock takes the exclusive lock of a directory, writes the process id into the lock file, and
// returns the locked file. It waits up to lockTimeout, or until ctx ends. Returns ErrLocked if a
// server holds the lock, ctx's error, or an error of the file system.
func lock(ctx context.Context, dir string) (*os.File, error) {
	deadline := time.Now().Add(lockTimeout)
	for {
		f, err := tryLock(lockFile(dir), true)
		if err == nil {
			writeOwner(f)
			return f, nil
		}
		if !errors.Is(err, errHeld) {
			return nil, fmt.Errorf("embedded: locking %s: %w", dir, err)
		}
		if time.Now().After(deadline) {
			return nil, lockedError(dir)
		}
		if !wake.Sleep(ctx, 10*time.Millisecond) {
			return nil, fmt.Errorf("embedded: locking %s: %w", dir, ctx.Err())
		}
	}
}

// writeOwner writes the process id into the lock file f, for the error text of other processes.
// Errors are ignored.
func writeOwner(f *os.File) {
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
}

// lockedError returns ErrLocked with the process that holds the lock, if it is known, and the next
// step.
func lockedError(dir string) error {
	holder := "a server"
	if b, err := os.ReadFile(lockFile(dir)); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			holder = "the server of process " + strconv.Itoa(pid)
		}
	}
	if u, err := readAddress(dir); err == nil {
		return fmt.Errorf("%w: %s is in use by %s, which listens on %s; join it with the URL that embedded.Address returns",
			ErrLocked, dir, holder, u.Host)
	}
	return fmt.Errorf("%w: %s is in use by %s, which accepts no connections; open it there with Options.Listen and join it with the URL "+
		"that embedded.Address returns, or use another directory", ErrLocked, dir, holder)
}
