package task

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// ID identifies a task through all its retries, copies and results. The producer chooses it: a UUID
// of version 7, unless the caller sets one. The zero value "" means "not chosen yet".
type ID string

// Check returns nil if id has 1 to 128 bytes of visible ASCII. Otherwise it returns an error that
// wraps [ErrBadID].
func (id ID) Check() error {
	if !naming.ValidID(string(id)) {
		return fmt.Errorf("%w: %q", ErrBadID, clip(string(id), 64))
	}
	return nil
}

// Derive returns the ID of a successor of parent. label distinguishes the successors of one parent.
// The same arguments give the same ID, so a consumer that repeats a step after a crash sends the
// same successor again.
//
// The result has the form of a UUID of version 8 (RFC 9562, section 5.8), made from a SHA-256.
func Derive(parent ID, label string) ID {
	h := sha256.New()
	h.Write([]byte(parent))
	h.Write([]byte{0})
	h.Write([]byte(label))
	sum := h.Sum(nil)[:16]
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	x := hex.EncodeToString(sum)
	return ID(x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:])
}

// CheckName returns nil if name is valid for a task or a queue: 1 to 128 bytes of ASCII letters,
// digits, '.', '_' and '-', beginning with a letter or a digit. Otherwise it returns an error that
// wraps [ErrBadName].
func CheckName(name string) error {
	if !naming.ValidName(name) {
		return fmt.Errorf("%w: %q", ErrBadName, clip(name, 64))
	}
	return nil
}

// clip cuts s to at most n bytes for an error text.
func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}
