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

// HeaderError is the header by which a request refuses: its text is the reason. The parameter "error" of the URL does the same.
const HeaderError = "Callback-Error"

// Config configures a [Handler]. Service must be set, and one of Signer, Verify and Open.
type Config struct {
	// Service has the jobs. The handler does not close it.
	Service *jobs.Service
	// Prefix is the path before /name/key, as the handler sees it, such as "/answers". "": none, as below http.StripPrefix.
	Prefix string

	// Signer, if set: only URLs that it has signed are accepted, and an answer is for the job that the URL names, whatever Read says.
	Signer *Signer
	// Verify, if set, says whether a request comes from who it should: by the signature of a service over the body, a password, or the certificate of the client. An error refuses the
	// request with 403; the client does not see its text. It must compare secrets in constant time (crypto/hmac.Equal), and is called from any goroutine. r.Body is empty by then.
	Verify func(r *http.Request, body []byte) error
	// Open has to be set where both of these are missing: whoever reaches the handler may answer any job whose name and key he knows or guesses.
	Open bool

	// Read makes an answer of a request. A Name or Key that it leaves out is that of the URL; where it sets them, one URL may serve all jobs: the path then ends with
	// the prefix, or with the name. [ErrSkip] has nothing be answered; any other error is 400. It is called from any goroutine.
	// nil: the body is JSON, and the result; none at all is null. A refusal has its reason in [HeaderError] or in the parameter "error".
	Read func(r *http.Request, body []byte) (jobs.Answer, error)
	// Status says with which status a client hears what became of its answer. nil: 200 accepted, 202 early, 409 duplicate, 410 late. Many services send again what is not answered with 2xx. What is no status from
	// 200 to 599 stands for that of nil.
	Status func(jobs.Receipt) int

	// MaxBody is how many bytes a body may have. 0: 1 MiB. Results have [jobs.MaxData] at most.
	MaxBody int64
	// Timeout is how long the store may take to write an answer. A client that goes away in the meantime ends nothing. 0: 30 s.
	Timeout time.Duration
	// RetryAfter is what a client is told to wait when the store is away, in whole seconds. 0: 10 s.
	RetryAfter time.Duration
	// Logger is told of what no client hears. nil: slog.Default().
	Logger *slog.Logger
}

// check fills in the defaults and returns all problems.
func (c *Config) check() error {
	var errs []error
	if c.Service == nil {
		errs = append(errs, errors.New("callback: Config.Service is not set"))
	}
	if guarded := c.Signer != nil || c.Verify != nil; guarded == c.Open {
		errs = append(errs, errors.New("callback: Config needs a Signer or Verify, or else Open, with which anybody may answer"))
	}
	c.Prefix = strings.TrimRight(c.Prefix, "/")
	if c.Prefix != "" && (c.Prefix[0] != '/' || (&url.URL{Path: c.Prefix}).EscapedPath() != c.Prefix) {
		errs = append(errs, fmt.Errorf("callback: Config.Prefix %q is no path that begins with a slash and needs no escapes", c.Prefix))
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

// bounded fills in the default of a duration, and says if it is out of bounds.
func bounded(name string, d *time.Duration, def, least, most time.Duration) error {
	if *d == 0 {
		*d = def
	}
	if *d < least || *d > most {
		return fmt.Errorf("callback: %s is %v, not %v to %v", name, *d, least, most)
	}
	return nil
}

// Stats count what a [Handler] has done since it was made. An answer that was sent again after the store had given no answer may count as Duplicate, although it was accepted.
type Stats struct {
	Accepted  int64 // answers that jobs have got
	Early     int64 // answers that no job awaited yet
	Late      int64 // answers to jobs that were over
	Duplicate int64 // answers to jobs that had one
	Skipped   int64 // requests of which Read said that they are no answers
	Forbidden int64 // requests that were not signed, or that Verify did not let in
	Bad       int64 // requests that were no good: path, method, type, size, contents
	Failed    int64 // answers that could not be written: the store was away
}

// counters are what a Handler, or a Listener, counts of its answers.
type counters struct {
	accepted, early, late, duplicate, skipped, failed atomic.Int64
}

// receipt counts what became of an answer.
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
