package control

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/swarmiji/swarmiji/task"
)

// Limits of keys.
const (
	MinKey   = 16 // bytes of a key; use 32 random ones
	macSize  = sha256.Size
	maxKeyID = 128
)

// Keys sign and verify messages. To change the key, first add the new one to ByID everywhere. Then
// make it Active everywhere, and finally remove the old one.
type Keys struct {
	// Active is the id of the key that signs. Ids must be valid names, see task.CheckName.
	Active string
	// ByID holds the accepted keys by id. Each has at least [MinKey] bytes.
	ByID map[string][]byte
}

// complete returns a copy of k that shares no bytes with it, and an error that joins all its
// problems: Active is not in ByID, an id is not a valid name, or a key is too short. A nil k stays
// nil.
func (k *Keys) complete() (*Keys, error) {
	if k == nil {
		return nil, nil
	}
	var errs []error
	if _, ok := k.ByID[k.Active]; !ok {
		errs = append(errs, errors.New("config: Keys: Active is not in ByID"))
	}
	own := &Keys{Active: k.Active, ByID: make(map[string][]byte, len(k.ByID))}
	for _, id := range slices.Sorted(maps.Keys(k.ByID)) {
		if err := task.CheckName(id); err != nil {
			errs = append(errs, fmt.Errorf("config: Keys: id: %w", err))
		}
		if n := len(k.ByID[id]); n < MinKey {
			errs = append(errs, fmt.Errorf("config: Keys: key %q has %d bytes, want %d and more", id, n, MinKey))
		}
		own.ByID[id] = slices.Clone(k.ByID[id])
	}
	return own, errors.Join(errs...)
}

// Results of a failed verification.
var (
	errUnsigned = errors.New("control: not signed")
	errForged   = errors.New("control: the signature is not valid")
)

// sign sets the key id and signature of m, made with the active key. It does nothing if k is nil.
func (k *Keys) sign(m *message) {
	if k == nil {
		return
	}
	m.key = k.Active
	m.mac = mac(k.ByID[k.Active], m)
}

// verify checks the signature of m. It returns errUnsigned without one, errForged if the key is
// unknown or the signature does not match, and nil otherwise. It accepts everything if k is nil.
func (k *Keys) verify(m *message) error {
	if k == nil {
		return nil
	}
	if m.key == "" {
		return errUnsigned
	}
	key, ok := k.ByID[m.key]
	if !ok || !hmac.Equal(mac(key, m), m.mac) {
		return errForged
	}
	return nil
}

// mac returns the HMAC-SHA256 of m. It covers the type, key id, head and data, each with its
// length, so that no byte can move from one to another.
func mac(key []byte, m *message) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("swarmiji control 1\n"))
	for _, part := range []string{m.typ, m.key, m.head, m.data} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}
