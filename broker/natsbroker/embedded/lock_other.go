//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package embedded

import (
	"errors"
	"os"
)

// tryLock refuses: a server without a lock would be one that another can destroy.
func tryLock(string, bool) (*os.File, error) {
	return nil, errors.New("files cannot be locked on this platform; run nats-server and connect to it")
}
