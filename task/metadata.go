package task

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Defaults of the metadata keys, used by the consumer where no layer sets the key.
const (
	DefaultMaxRetries = 3               // a task runs at most 1 + 3 times
	DefaultRetryDelay = 3 * time.Minute // between two attempts when Retry names no delay
	DefaultPriority   = 100             // lower runs first
	DefaultResultTTL  = 24 * time.Hour  // how long a stored result is kept
)

// Metadata says how a task is to be invoked and what is to be done on failure. Every key is optional; a task without any
// metadata works. The zero value sets nothing. Metadata are values: copying one copies all of it.
type Metadata struct {
	// Queue names the queue and overrides the router.
	Queue Opt[string]
	// MaxRetries is how often the task may be retried: with 3 it runs at most 4 times. Negative: no limit.
	MaxRetries Opt[int]
	// RetryDelay is the wait before a retry that names no delay of its own. 0: at once.
	RetryDelay Opt[time.Duration]
	// Retry is the text of a [RetryPolicy]: which errors are retried without the handler's asking, and after how long. "":
	// none are.
	Retry Opt[string]
	// RateLimit is "N/s", "N/m" or "N/h": how many runs of this task name one consumer process may start. "": no limit.
	RateLimit Opt[string]
	// TimeLimit is the hard limit of one run: its context is cancelled, the task fails with [ErrTimeLimit], and the worker
	// goes on even when the function ignores its context. 0: none. Whole milliseconds; less than one is rounded up.
	TimeLimit Opt[time.Duration]
	// SoftTimeLimit cancels the run's context with cause [ErrSoftTimeLimit] and lets the function end by itself. 0: none.
	SoftTimeLimit Opt[time.Duration]
	// IgnoreResult stores no state and sends no result; the future succeeds at once with the zero value.
	IgnoreResult Opt[bool]
	// Idempotent true (the default) acknowledges after the run: at least once. False acknowledges before it: at most once. A
	// task of the latter kind that may have started, and whose end nobody knows, fails with [ErrUncertain]. Do not repeat a
	// submission of it whose outcome is unknown (broker.ErrIndeterminate): both may be queued. As a step of a workflow it needs
	// a result store that gathers.
	Idempotent Opt[bool]
	// DeadLetter true (the default) keeps a task that failed for good, or whose retries are used up, among the dead letters of
	// its queue. False leaves only its record. What nobody can read, no consumer knows, ends its process or is uncertain
	// is kept all the same.
	DeadLetter Opt[bool]
	// Serializer is the content type in which arguments and result are written.
	Serializer Opt[string]
	// Compression names the way in which arguments and result are compressed when they are large, one of those that producer
	// and consumer are configured with. "": not at all.
	Compression Opt[string]
	// ResultStore names one of the configured stores. "": the default one.
	ResultStore Opt[string]
	// ResultTTL is how long the result is kept, where the store keeps results.
	ResultTTL Opt[time.Duration]
	// Priority orders the tasks of a queue that was declared with levels; lower runs first, default 100.
	Priority Opt[int]
	// NotBefore is the earliest moment the task may start. The zero time: at once.
	NotBefore Opt[time.Time]
	// Expires is the moment after which the task is no longer started. The zero time: never.
	Expires Opt[time.Time]
}

// Merge lays metadata over each other, key by key, the lowest layer first: static configuration, consumer configuration,
// the task's definition, the call. A key that is set, even to zero or false, overrides the layers before it.
func Merge(layers ...Metadata) Metadata {
	var m Metadata
	first := true // nothing to override yet
	for i := range layers {
		switch {
		case layers[i].IsZero():
		case first:
			m, first = layers[i], false
		default:
			m.Overlay(&layers[i])
		}
	}
	return m
}

// Overlay sets in m every key that upper sets. It does not keep upper.
func (m *Metadata) Overlay(upper *Metadata) {
	m.Queue = upper.Queue.over(m.Queue)
	m.MaxRetries = upper.MaxRetries.over(m.MaxRetries)
	m.RetryDelay = upper.RetryDelay.over(m.RetryDelay)
	m.Retry = upper.Retry.over(m.Retry)
	m.RateLimit = upper.RateLimit.over(m.RateLimit)
	m.TimeLimit = upper.TimeLimit.over(m.TimeLimit)
	m.SoftTimeLimit = upper.SoftTimeLimit.over(m.SoftTimeLimit)
	m.IgnoreResult = upper.IgnoreResult.over(m.IgnoreResult)
	m.Idempotent = upper.Idempotent.over(m.Idempotent)
	m.DeadLetter = upper.DeadLetter.over(m.DeadLetter)
	m.Serializer = upper.Serializer.over(m.Serializer)
	m.Compression = upper.Compression.over(m.Compression)
	m.ResultStore = upper.ResultStore.over(m.ResultStore)
	m.ResultTTL = upper.ResultTTL.over(m.ResultTTL)
	m.Priority = upper.Priority.over(m.Priority)
	m.NotBefore = upper.NotBefore.over(m.NotBefore)
	m.Expires = upper.Expires.over(m.Expires)
}

// IsZero reports whether no key is set.
func (m *Metadata) IsZero() bool {
	some := m.Queue.set || m.MaxRetries.set || m.RetryDelay.set || m.Retry.set || m.RateLimit.set || m.TimeLimit.set ||
		m.SoftTimeLimit.set || m.IgnoreResult.set || m.Idempotent.set || m.DeadLetter.set || m.Serializer.set || m.Compression.set ||
		m.ResultStore.set || m.ResultTTL.set || m.Priority.set || m.NotBefore.set || m.Expires.set
	return !some
}

// Limits of what a metadata key may hold; beyond them Check refuses at the producer, and a consumer clamps what it reads.
const (
	MaxPriority  = 1<<31 - 1
	MaxTimeLimit = 10 * 365 * 24 * time.Hour
)

// Check returns every problem of m, joined, or nil. The producer calls it before any I/O.
func (m *Metadata) Check() error {
	var errs []error
	bad := func(key string, v any) { errs = append(errs, fmt.Errorf("%w: %s %v", ErrBadMetadata, key, v)) }
	if q, ok := m.Queue.Get(); ok {
		if err := CheckName(q); err != nil {
			errs = append(errs, fmt.Errorf("queue: %w", err))
		}
	}
	for _, d := range []struct {
		key string
		opt Opt[time.Duration]
	}{
		{"retry_delay", m.RetryDelay},
		{"time_limit", m.TimeLimit},
		{"soft_time_limit", m.SoftTimeLimit},
		{"result_ttl", m.ResultTTL},
	} {
		if v, ok := d.opt.Get(); ok && (v < 0 || v > MaxTimeLimit) {
			bad(d.key, v)
		}
	}
	if p, ok := m.Priority.Get(); ok && (p < 0 || p > MaxPriority) {
		bad("priority", p)
	}
	if text := m.Retry.Or(""); text != "" {
		if _, err := ParseRetryPolicy(text); err != nil {
			errs = append(errs, err)
		}
	}
	if r, ok := m.RateLimit.Get(); ok {
		if _, _, err := ParseRate(r); err != nil {
			errs = append(errs, err)
		}
	}
	for _, t := range []struct {
		key string
		opt Opt[time.Time]
	}{{"not_before", m.NotBefore}, {"expires", m.Expires}} {
		if v, ok := t.opt.Get(); ok && !v.IsZero() && (v.Year() < 1970 || v.Year() > 9998) {
			bad(t.key, v)
		}
	}
	return errors.Join(errs...)
}

// ParseRate reads a rate such as "10/s", "600/m" or "5000/h": n runs in each period. "" is no limit and gives 0, 0.
// The error wraps [ErrBadMetadata].
func ParseRate(s string) (n int, per time.Duration, err error) {
	if s == "" {
		return 0, 0, nil
	}
	count, unit, found := strings.Cut(s, "/")
	n, err = strconv.Atoi(count)
	periods := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}
	per = periods[unit]
	if !found || err != nil || n <= 0 || per == 0 {
		return 0, 0, fmt.Errorf("%w: rate_limit %q is not of the form 10/s, 10/m or 10/h", ErrBadMetadata, clip(s, 32))
	}
	return n, per, nil
}
