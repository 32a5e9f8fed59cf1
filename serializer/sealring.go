package serializer

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

// A sealed value has this form:
//
//	version (1 byte: 1) | algorithm (1 byte) | length of the key id (1 byte) | key id | rest
//
// For AES-256-GCM (algorithm 1) the rest is a nonce of 12 bytes, the ciphertext and a tag of 16
// bytes. For HMAC-SHA256 (algorithm 2) it is the plain bytes and a tag of 32 bytes.
//
// The tag also authenticates the head, which is everything before the rest, and the binding. GCM's
// additional data are the head and the binding. The HMAC covers the head, the length of the binding
// (8 bytes, big endian), the binding and the plain bytes.
const (
	sealVersion   = 1
	sealAESGCM    = 1
	sealHMAC      = 2
	sealHeadBytes = 3 // without the key id

	encryptKeyBytes = 32 // AES-256
	gcmOverhead     = 12 + 16
	maxKeyID        = 64
)

// Key is a secret with a name. The name is sent with the sealed data, so that many keys can be in
// use at once; it is not secret.
type Key struct {
	// ID is the name of the key: 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or a digit.
	// Never use a name again for another secret.
	ID string
	// Secret is 32 random bytes, from crypto/rand or a secret store, never a password. With SignOnly
	// it may be longer.
	Secret []byte
	// SignOnly authenticates with HMAC-SHA256 and does not encrypt. False: AES-256-GCM.
	SignOnly bool
}

// String returns the name of the key without its secret. Printing, logging or encoding a Key as
// JSON shows nothing else.
func (k Key) String() string { return "key " + utf.Cut(k.ID, maxKeyID) }

// Format prints the result of String, with any verb.
func (k Key) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, k.String()) }

// MarshalText returns the result of String.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// KeyRing is a [Sealer] with one key that seals and any number of keys that open. It is immutable
// and safe for concurrent use. A key for AES-256-GCM must not seal more than 2^32 values.
//
// To change keys, first add the new key to all processes for opening only. Then use it for sealing.
// Remove the old key when no message sealed with it can remain; docs/security.md describes the
// steps.
type KeyRing struct {
	active *ringKey
	keys   map[string]*ringKey
}

// ringKey is a checked key in the form that KeyRing uses.
type ringKey struct {
	id        string
	algorithm byte
	aead      cipher.AEAD // adds its own random nonce
	secret    []byte      // of an HMAC
	head      []byte      // the start of all its sealed values
}

// NewKeyRing returns a key ring. active seals and opens; the other keys only open. The secrets are
// copied. Its error joins all problems of the keys.
func NewKeyRing(active Key, opening ...Key) (*KeyRing, error) {
	r := &KeyRing{keys: make(map[string]*ringKey, 1+len(opening))}
	var errs []error
	for i, k := range append([]Key{active}, opening...) {
		made, err := k.prepare()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("serializer: %v: %w", k, err))
			continue
		case r.keys[k.ID] != nil:
			errs = append(errs, fmt.Errorf("serializer: %v is in the ring twice", k))
			continue
		}
		r.keys[k.ID] = made
		if i == 0 {
			r.active = made
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

// prepare checks k and returns the key that KeyRing uses, with a copy of the secret. Returns an
// error for a wrong id or length of the secret.
func (k Key) prepare() (*ringKey, error) {
	if len(k.ID) > maxKeyID || task.CheckName(k.ID) != nil {
		return nil, errors.New("its id is not 1 to 64 of A-Z a-z 0-9 . _ -")
	}
	r := &ringKey{id: k.ID, algorithm: sealAESGCM}
	if k.SignOnly {
		if len(k.Secret) < sha256.Size {
			return nil, fmt.Errorf("its secret has %d bytes, want at least %d", len(k.Secret), sha256.Size)
		}
		r.algorithm, r.secret = sealHMAC, append([]byte(nil), k.Secret...)
	} else {
		if len(k.Secret) != encryptKeyBytes {
			return nil, fmt.Errorf("its secret has %d bytes, want %d", len(k.Secret), encryptKeyBytes)
		}
		block, err := aes.NewCipher(k.Secret)
		if err != nil {
			return nil, err
		}
		if r.aead, err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, err
		}
	}
	r.head = append([]byte{sealVersion, r.algorithm, byte(len(k.ID))}, k.ID...)
	return r, nil
}

// Active returns the id of the key that seals.
func (r *KeyRing) Active() string { return r.active.id }

// String returns the number of keys and the name of the key that seals. Printing a KeyRing shows
// nothing else.
func (r *KeyRing) String() string {
	return fmt.Sprintf("key ring sealing with %q, %d keys", r.active.id, len(r.keys))
}

// Format prints the result of String, with any verb.
func (r *KeyRing) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, r.String()) }

// Seal implements [Sealer]: it returns plain encrypted or signed with the active key, together with
// the id of that key. It does not fail.
func (r *KeyRing) Seal(plain, bound []byte) ([]byte, error) {
	k := r.active
	if k.algorithm == sealHMAC {
		out := make([]byte, 0, len(k.head)+len(plain)+sha256.Size)
		out = append(append(out, k.head...), plain...)
		return append(out, k.sum(plain, bound)...), nil
	}
	out := append(make([]byte, 0, len(k.head)+gcmOverhead+len(plain)), k.head...)
	return k.aead.Seal(out, nil, plain, k.additional(bound)), nil //nolint:gosec // it makes its nonces itself, and takes none
}

// Open implements [Sealer]: it finds the key by the id in sealed, checks the seal and returns the
// data. With a SignOnly key the data shares memory with sealed.
//
//   - Returns [ErrMalformed] if sealed is not a seal of this version.
//   - Returns [ErrUnknownKey] if the ring lacks the key.
//   - Returns [ErrForged] if the seal does not fit data, bound or key.
func (r *KeyRing) Open(sealed, bound []byte) ([]byte, error) {
	if len(sealed) < sealHeadBytes {
		return nil, fmt.Errorf("%w: a seal of %d bytes", ErrMalformed, len(sealed))
	}
	if sealed[0] != sealVersion {
		return nil, fmt.Errorf("%w: a seal of version %d; this program supports %d", ErrMalformed, sealed[0], sealVersion)
	}
	end := sealHeadBytes + int(sealed[2])
	if len(sealed) < end {
		return nil, fmt.Errorf("%w: a seal that ends in its key id", ErrMalformed)
	}
	id := string(sealed[sealHeadBytes:end])
	k := r.keys[id]
	if k == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknownKey, utf.Cut(id, maxKeyID))
	}
	if sealed[1] != k.algorithm {
		return nil, fmt.Errorf("%w: algorithm %d, key %q is for %d", ErrForged, sealed[1], k.id, k.algorithm)
	}
	return k.open(sealed[end:], bound)
}

// open returns the data in rest, the part of a sealed value after the key id. Returns ErrForged if
// the seal does not fit.
func (k *ringKey) open(rest, bound []byte) ([]byte, error) {
	if k.algorithm == sealHMAC {
		cut := len(rest) - sha256.Size
		if cut < 0 {
			return nil, fmt.Errorf("%w: too short for a signature", ErrForged)
		}
		if !hmac.Equal(rest[cut:], k.sum(rest[:cut], bound)) {
			return nil, fmt.Errorf("%w: signature of key %q", ErrForged, k.id)
		}
		return rest[:cut:cut], nil
	}
	if len(rest) < gcmOverhead {
		return nil, fmt.Errorf("%w: too short for a nonce and a tag", ErrForged)
	}
	plain, err := k.aead.Open(nil, nil, rest, k.additional(bound))
	if err != nil {
		return nil, fmt.Errorf("%w: key %q", ErrForged, k.id)
	}
	return plain, nil
}

// additional returns the bytes that AES-GCM authenticates and does not encrypt: the head of sealed
// values, then bound.
func (k *ringKey) additional(bound []byte) []byte {
	return append(append(make([]byte, 0, len(k.head)+len(bound)), k.head...), bound...)
}

// sum returns the HMAC-SHA256 of the head of sealed values, the length of bound, bound and plain.
func (k *ringKey) sum(plain, bound []byte) []byte {
	m := hmac.New(sha256.New, k.secret)
	m.Write(k.head)
	m.Write(binary.BigEndian.AppendUint64(nil, uint64(len(bound))))
	m.Write(bound)
	m.Write(plain)
	return m.Sum(nil)
}
