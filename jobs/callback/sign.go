package callback

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

const (
	// MinSecret is the minimum number of bytes of a secret. 32 random bytes are recommended.
	MinSecret = 16
	// DefaultValid is the default time for which a signed URL is valid.
	DefaultValid = 7 * 24 * time.Hour
)

// maxValid is the longest time for which a signed URL may be valid.
const maxValid = 10 * 365 * 24 * time.Hour

// SignerConfig configures a [Signer]. Only Secrets is required.
type SignerConfig struct {
	// Secrets are the keys of the signatures, each of at least [MinSecret] bytes. The first one signs;
	// all are accepted. To change the secret, first add the new one at the end in all processes. Then
	// move it to the front in all processes. Remove the old one after its URLs have expired.
	Secrets [][]byte
	// Valid is the time for which a URL is valid. It should be longer than jobs wait for their
	// answers: a later answer is rejected like a forged one. Default: 7 days. From 1 s to 10 years.
	Valid time.Duration
}

// Signer makes URLs with which a client can answer one job. Forging one requires a secret.
// All methods are safe for concurrent use.
type Signer struct {
	secrets [][]byte
	valid   time.Duration
}

// NewSigner returns a Signer with copies of the secrets. A Valid of 0 becomes [DefaultValid]; it
// must be from one second to maxValid. Returns all problems of c, joined; the Signer is then nil.
// No error contains a secret.
func NewSigner(c SignerConfig) (*Signer, error) {
	var errs []error
	if len(c.Secrets) == 0 {
		errs = append(errs, errors.New("callback: SignerConfig.Secrets is empty"))
	}
	s := &Signer{valid: c.Valid}
	for i, secret := range c.Secrets {
		if len(secret) < MinSecret {
			errs = append(errs, fmt.Errorf("callback: SignerConfig.Secrets: number %d has %d bytes, want %d and more", i, len(secret), MinSecret))
		}
		s.secrets = append(s.secrets, slices.Clone(secret))
	}
	if s.valid == 0 {
		s.valid = DefaultValid
	}
	if s.valid < time.Second || s.valid > maxValid {
		errs = append(errs, fmt.Errorf("callback: SignerConfig.Valid is %v, not 1 s to %v", c.Valid, maxValid))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s, nil
}

// URL returns the URL of function [URL] with a signature, valid from now for SignerConfig.Valid.
// The signature covers the name, the key and the end of validity. It does not cover the base, which
// proxies may change. Returns the errors of [URL].
func (s *Signer) URL(base, name, key string) (string, error) {
	return s.URLUntil(base, name, key, time.Now().Add(s.valid))
}

// URLUntil is URL, but the result is valid until the given time, in whole seconds.
// SignerConfig.Valid does not matter. It signs with the first secret. The query gets the
// parameters "expires", in seconds since 1970, and "signature", in base64 for URLs. Returns the
// errors of [URL].
func (s *Signer) URLUntil(base, name, key string, until time.Time) (string, error) {
	u, err := parseBase(base)
	if err != nil {
		return "", err
	}
	expires := strconv.FormatInt(until.Unix(), 10)
	return target(u, name, key, url.Values{
		paramExpires:   {expires},
		paramSignature: {base64.RawURLEncoding.EncodeToString(sign(s.secrets[0], name, key, expires))},
	})
}

// The reasons for which a URL is rejected.
var (
	errUnsigned = errors.New("callback: the URL is not signed")
	errForged   = errors.New("callback: the signature is not valid")
	errExpired  = errors.New("callback: the URL has expired")
)

// verify checks the signature of an address and then its time, in this order:
//
//   - errUnsigned: the URL has no signature or no time.
//   - errForged: the signature is malformed, or none of the secrets has made it.
//   - errExpired: its time has passed.
//   - nil: all is good.
//
// A client without a valid signature thus does not learn whether the time has passed.
func (s *Signer) verify(a *address, now time.Time) error {
	if a.signature == "" || a.expires == "" {
		return errUnsigned
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(a.signature)
	// the decoder would ignore line breaks
	if err != nil || len(got) != sha256.Size || len(a.signature) != base64.RawURLEncoding.EncodedLen(sha256.Size) {
		return errForged
	}
	good := false
	for _, secret := range s.secrets {
		if hmac.Equal(got, sign(secret, a.name, a.key, a.expires)) {
			good = true
		}
	}
	if !good {
		return errForged
	}
	until, err := strconv.ParseInt(a.expires, 10, 64)
	if err != nil {
		return errForged // no signer writes such a time
	}
	if now.Unix() > until {
		return errExpired
	}
	return nil
}

// sign returns the signature (HMAC-SHA256) of parts: the name, the key and a time. It covers a
// fixed prefix, then each part after its length in 8 bytes, so that no byte can move from one part
// to another.
func sign(secret []byte, parts ...string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("swarmiji callback 1\n"))
	for _, part := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// answerOf returns an answer with this name and key, and without a result or a refusal.
func answerOf(name, key string) jobs.Answer { return jobs.Answer{Name: name, Key: key} }
