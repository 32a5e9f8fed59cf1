package serializer

import (
	"encoding/binary"
	"errors"
)

// Errors of opening sealed data. A message with one of them is dead-lettered; no handler gets it.
var (
	// ErrNotSealed: data is not sealed, or is sealed for another purpose, where sealing is required.
	ErrNotSealed = errors.New("serializer: not sealed")
	// ErrUnknownKey: the data is sealed with a key that this process does not have.
	ErrUnknownKey = errors.New("serializer: sealed with an unknown key")
	// ErrForged: the data was changed, or sealed with another key of the same name, or for another
	// task, queue or purpose.
	ErrForged = errors.New("serializer: seal is broken")
)

// Sealer protects bytes against changes and, depending on its keys, against reading. [KeyRing] is
// an implementation. Implementations must be safe for concurrent use.
type Sealer interface {
	// Seal returns plain in sealed form, in a new slice. The seal is also bound to the bytes of bound,
	// which are not part of the result: Open needs the same bytes.
	Seal(plain, bound []byte) ([]byte, error)
	// Open returns the data of a seal. The result may share memory with sealed, which is not changed.
	// It never panics, for any input.
	//
	// Returns [ErrMalformed] if sealed is not a seal, [ErrUnknownKey], or [ErrForged].
	Open(sealed, bound []byte) ([]byte, error)
}

// Binding returns the bound argument of a [Sealer] for a purpose, such as "task", and texts that
// the sealed data belongs to. Different lists never give the same bytes.
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
