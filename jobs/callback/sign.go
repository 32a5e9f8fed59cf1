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
	// MinSecret is how many bytes a secret has at least; 32 random ones are a good one.
	MinSecret = 16
	// DefaultValid is how long a signed URL is good.
	DefaultValid = 7 * 24 * time.Hour
)

// maxValid is the longest time that a signed URL may be good for.
const maxValid = 10 * 365 * 24 * time.Hour

// SignerConfig configures a [Signer]. Only Secrets must be set.
type SignerConfig struct {
	// Secrets are the keys of the signatures, of [MinSecret] bytes and more. The first one signs and all of them are accepted. To change it, add the new one behind the old one
	// everywhere, then put it first everywhere, and take the old one away when the URLs that it has signed are no good any more.
	Secrets [][]byte
	// Valid is how long a URL is good. 0: 7 days. It should be longer than the jobs wait for their answers: what comes after it is refused as if it were forged,
	// and nobody learns that it was late. From 1 s to 10 years.
	Valid time.Duration
}

// Signer makes URLs that answer one job, and cannot be made by who does not have a secret. All methods may be called from any goroutine.
type Signer struct {
	secrets [][]byte
	valid   time.Duration
}

// NewSigner makes a Signer, or returns every problem of the configuration, joined. No error holds a secret.
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

// URL is [URL], signed, and good from now on for SignerConfig.Valid. The signature covers the name, the key and the time, not the base, so that proxies may change that.
func (s *Signer) URL(base, name, key string) (string, error) {
	return s.URLUntil(base, name, key, time.Now().Add(s.valid))
}

// URLUntil is URL, good until a given time, in seconds.
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

// The reasons why a URL is not accepted.
var (
	errUnsigned = errors.New("callback: the URL is not signed")
	errForged   = errors.New("callback: the signature does not fit")
	errExpired  = errors.New("callback: the URL is good no more")
)

// verify checks the signature of an address, and then its time: who has not signed it learns nothing of that.
func (s *Signer) verify(a *address, now time.Time) error {
	if a.signature == "" || a.expires == "" {
		return errUnsigned
	}
	got, err := base64.RawURLEncoding.Strict().DecodeString(a.signature)
	if err != nil || len(got) != sha256.Size || len(a.signature) != base64.RawURLEncoding.EncodedLen(sha256.Size) { // line breaks would be passed over
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
		return errForged // nobody signs it
	}
	if now.Unix() > until {
		return errExpired
	}
	return nil
}

// sign returns the signature of a name, a key and a time, each with its length before it, so that no byte can move from one to another.
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

// answerOf is an answer without a result.
func answerOf(name, key string) jobs.Answer { return jobs.Answer{Name: name, Key: key} }
