//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package embedded

import (
	"errors"
	"os"
)

// tryLock returns an error: without a lock another server could destroy the data.
func tryLock(string, bool) (*os.File, error) {
	return nil, errors.New("files cannot be locked on this platform; run nats-server and connect to it")
}
