package serializer

import (
	"encoding/binary"
	"errors"
)

// The classes of errors of sealing. What cannot be opened belongs to the dead letters: no handler ever sees it.
var (
	// ErrNotSealed: something is plain, or came as another thing than it is sealed as, where only what is sealed is taken.
	ErrNotSealed = errors.New("serializer: not sealed")
	// ErrUnknownKey: it is sealed with a key that this process does not have.
	ErrUnknownKey = errors.New("serializer: sealed with an unknown key")
	// ErrForged: it was sealed with another key of the same name, for another task, queue or purpose, or was changed since.
	ErrForged = errors.New("serializer: seal is broken")
)

// Sealer protects bytes against being read or changed on their way. [KeyRing] is one. It may be used from any goroutine.
type Sealer interface {
	// Seal returns plain, sealed, in a new slice. The seal is bound to bound, which does not travel: whoever opens it must
	// give the same.
	Seal(plain, bound []byte) ([]byte, error)
	// Open returns what was sealed. Its errors wrap [ErrMalformed] for what is no seal, [ErrUnknownKey], or [ErrForged]. It
	// never panics, whatever sealed holds, and what it returns may share memory with sealed, which it does not change.
	Open(sealed, bound []byte) ([]byte, error)
}

// Binding makes the second argument of a [Sealer] of a purpose, such as "task", and of texts that nothing sealed for this
// purpose may be moved away from. Two different lists never give the same bytes.
func Binding(purpose string, parts ...string) []byte {
	size := 4 + len(purpose)
	for _, p := range parts {
		size += 4 + len(p)
	}
	b := make([]byte, 0, size)
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(purpose))), purpose...)
	for _, p := range parts {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(p))), p...)
	}
	return b
}
