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

// errHeld is what the lock functions of a platform return when somebody else holds the lock.
var errHeld = errors.New("held by another server")

// lockPatience is how long Open waits for a lock: [Address] takes it for a moment, to see whether a server runs.
const lockPatience = 200 * time.Millisecond

// lock takes the exclusive lock of a directory.
func lock(ctx context.Context, dir string) (*os.File, error) {
	deadline := time.Now().Add(lockPatience)
	for {
		f, err := tryLock(lockFile(dir), true)
		if err == nil {
			sign(f)
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

// sign writes the process id into the lock file, for the message that others get. That it may fail does not matter.
func sign(f *os.File) {
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
}

// lockedError says who holds the lock as far as that can be known, and what to do.
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
	return fmt.Errorf("%w: %s is in use by %s, which takes no connections; open it there with Options.Listen and join it with the URL "+
		"that embedded.Address returns, or use another directory", ErrLocked, dir, holder)
}
