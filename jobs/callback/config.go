package callback

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
)

// The defaults of [Config].
const (
	DefaultMaxBody    = jobs.MaxData
	DefaultTimeout    = 30 * time.Second
	DefaultRetryAfter = 10 * time.Second
)

// HeaderError is the request header that makes an answer a refusal; its text is the reason. The URL
// parameter "error" has the same effect.
const HeaderError = "Callback-Error"

// Config configures a [Handler]. Service is required, and one of Signer, Verify and Open.
type Config struct {
	// Service is the service of the jobs. The handler does not close it.
	Service *jobs.Service
	// Prefix is the path before /name/key, as the handler receives it, such as "/answers". "": no
	// prefix, as behind http.StripPrefix.
	Prefix string

	// Signer, if set, limits requests to URLs that it has signed. An answer is then for the job that
	// the URL names, whatever Read returns.
	Signer *Signer
	// Verify, if set, authenticates a request, for example by a signature over the body, a password,
	// or the client's certificate. An error rejects the request with 403; the client does not see the
	// text of the error. It must compare secrets in constant time (crypto/hmac.Equal). It may be
	// called from any goroutine. r.Body is empty.
	Verify func(r *http.Request, body []byte) error
	// Open must be set if Signer and Verify are not. Then every client that reaches the handler may
	// answer any job whose name and key it knows or guesses.
	Open bool

	// Read converts a request to an answer. A Name or Key that it leaves empty is taken from the URL.
	// If it sets them, one URL may serve all jobs: the path then ends with the prefix or with the
	// name.
	//
	// [ErrSkip] acknowledges the request without an answer. Any other error rejects it with 400. Read
	// may be called from any goroutine. nil: the body is JSON and becomes the result; an empty body
	// means null. [HeaderError] or the parameter "error" makes it a refusal.
	Read func(r *http.Request, body []byte) (jobs.Answer, error)
	// Status returns the HTTP status for a receipt. nil: 200 accepted, 202 early, 409 duplicate, 410
	// late. Many services repeat a request whose status is not 2xx. A number outside 200 to 599 is
	// replaced by the default status.
	Status func(jobs.Receipt) int

	// MaxBody limits the bytes of a body. Default: 1 MiB. A result has at most [jobs.MaxData] bytes.
	MaxBody int64
	// Timeout limits the time for storing an answer. A client that disconnects meanwhile does not
	// interrupt it. Default: 30 s.
	Timeout time.Duration
	// RetryAfter is the Retry-After of a response while the store is unavailable, in whole seconds.
	// Default: 10 s.
	RetryAfter time.Duration
	// Logger logs errors that no client receives. Default: slog.Default().
	Logger *slog.Logger
}

// check sets the defaults, removes slashes at the end of Prefix, and checks the fields. Returns
// all problems, joined. Either Open must be set, or Signer or Verify, but not both. MaxBody must
// be 1 byte to 1 GiB, Timeout 1 ms to 1 h, and RetryAfter 1 s to 24 h; 0 means the default.
func (c *Config) check() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("callback: Config.Service is not set"))
	}
	if guarded := c.Signer != nil || c.Verify != nil; guarded == c.Open {
		errs = append(errs, errors.New("callback: Config requires Signer or Verify, or else Open, which lets every client answer"))
	}
	c.Prefix = strings.TrimRight(c.Prefix, "/")
	if c.Prefix != "" && (c.Prefix[0] != '/' || (&url.URL{Path: c.Prefix}).EscapedPath() != c.Prefix) {
		errs = append(errs, fmt.Errorf("callback: Config.Prefix %q is not a path that begins with a slash and needs no escapes", c.Prefix))
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.MaxBody < 1 || c.MaxBody > 1<<30 {
		errs = append(errs, fmt.Errorf("callback: Config.MaxBody is %d, not 1 to %d", c.MaxBody, 1<<30))
	}
	errs = append(errs,
		bounded("Config.Timeout", &c.Timeout, DefaultTimeout, time.Millisecond, time.Hour),
		bounded("Config.RetryAfter", &c.RetryAfter, DefaultRetryAfter, time.Second, 24*time.Hour))
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

// bounded sets a duration of 0 to def. Returns an error, with name, if the duration is then outside
// least to most.
func bounded(name string, d *time.Duration, def, least, most time.Duration) error {
	if *d == 0 {
		*d = def
	}
	if *d < least || *d > most {
		return fmt.Errorf("callback: %s is %v, not %v to %v", name, *d, least, most)
	}
	return nil
}

// Stats contains the counts of a [Handler] since NewHandler. An accepted answer may count as
// Duplicate if the client sent it again because the store did not reply.
type Stats struct {
	Accepted  int64 // answers that jobs or tasks accepted
	Early     int64 // answers that no job awaited yet
	Late      int64 // answers for jobs that were over
	Duplicate int64 // answers for jobs that already had an answer
	Skipped   int64 // requests for which Read returned ErrSkip
	Forbidden int64 // requests that were not signed, or that Verify rejected
	Bad       int64 // requests with a bad path, method, type, size or content
	Failed    int64 // answers that were not stored because the store was unavailable
}

// counters contains the counts of answers that a Handler and a Listener share.
type counters struct {
	accepted, early, late, duplicate, skipped, failed atomic.Int64
}

// receipt adds one to the counter for the kind of a receipt: accepted, early, late or duplicate. A
// receipt of another kind is not counted.
func (c *counters) receipt(r jobs.Receipt) {
	switch r.Kind {
	case jobs.Accepted:
		c.accepted.Add(1)
	case jobs.Early:
		c.early.Add(1)
	case jobs.Late:
		c.late.Add(1)
	case jobs.Duplicate:
		c.duplicate.Add(1)
	}
}
