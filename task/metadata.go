package task

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/internal/naming"
)

// Defaults of the metadata, which the consumer uses if no layer sets the key.
const (
	DefaultMaxRetries = 3               // a task runs at most 1 + 3 times
	DefaultRetryDelay = 3 * time.Minute // delay before a retry that sets none
	DefaultPriority   = 100             // lower runs first
	DefaultResultTTL  = 24 * time.Hour  // retention of a stored result
)

// Metadata configure how a task runs and how it is retried. Every key is optional. The zero value
// sets nothing. A copy of a Metadata is independent of the original.
type Metadata struct {
	// Queue is the queue of the task. It overrides the router.
	Queue Opt[string]
	// MaxRetries limits the retries of the task: with 3 it runs at most 4 times. Negative: no limit.
	// Default: 3.
	MaxRetries Opt[int]
	// RetryDelay is the delay before a retry that sets none of its own. 0: at once. Default: 3m.
	RetryDelay Opt[time.Duration]
	// Retry is the text of a [RetryPolicy]: which errors are retried although the handler does not ask
	// for it, and after which delay. "": none.
	Retry Opt[string]
	// RateLimit limits the starts of this task name in one consumer process: "N/s", "N/m" or "N/h".
	// "": no limit.
	RateLimit Opt[string]
	// TimeLimit is the hard time limit of an attempt. At the limit its context is cancelled, and the
	// task fails with [ErrTimeLimit] when the handler returns. A second later at the latest the task
	// fails and the worker continues, even if the handler ignores its context. 0: no limit. Whole
	// milliseconds, rounded up.
	TimeLimit Opt[time.Duration]
	// SoftTimeLimit is the time after which the handler's context is cancelled with cause
	// [ErrSoftTimeLimit]. The handler then decides how it ends. 0: no limit.
	SoftTimeLimit Opt[time.Duration]
	// IgnoreResult stores no state and sends no result. The future succeeds at once with the zero
	// value.
	IgnoreResult Opt[bool]
	// Idempotent selects when the task is acknowledged. True, the default: after it ran, at least
	// once. False: before it runs, at most once.
	//
	// An at-most-once task that may have started, and whose end is unknown, fails with [ErrUncertain].
	// Do not repeat its submission after an unknown outcome (broker.ErrIndeterminate): both messages
	// may be queued. As a step of a workflow it needs a result store that gathers.
	Idempotent Opt[bool]
	// DeadLetter selects whether a task that failed for good is dead-lettered. True is the default.
	// False: only its record is kept.
	//
	// Messages that cannot be decoded, tasks without a handler, tasks that end their process and
	// uncertain tasks are dead-lettered in any case.
	DeadLetter Opt[bool]
	// Serializer is the content type of the arguments and the result.
	Serializer Opt[string]
	// Compression names the compression of large arguments and results, from those that producer and
	// consumer are configured with. "": no compression.
	Compression Opt[string]
	// ResultStore names one of the configured stores. "": the default store.
	ResultStore Opt[string]
	// ResultTTL is the retention of the result, if the store keeps results. Default: 24h.
	ResultTTL Opt[time.Duration]
	// Priority orders the tasks of a queue that was declared with levels. Lower runs first. Default:
	// 100.
	Priority Opt[int]
	// FairnessKey groups the tasks of one customer, for example. A queue that was declared with Fair
	// starts tasks in turns over the keys. At most 255 bytes of UTF-8 without
	// control characters. Tasks without a key share the key "".
	FairnessKey Opt[string]
	// FairnessWeight is the share of the key in the turns, 1 to 100: with 5 it starts five tasks while
	// a key of weight 1 starts one. Default: 1.
	FairnessWeight Opt[int]
	// NotBefore is the earliest start of the task. The zero time: at once.
	NotBefore Opt[time.Time]
	// Expires is the time after which the task no longer starts. The zero time: never.
	Expires Opt[time.Time]
}

// Merge merges layers of metadata key by key, the lowest layer first: static configuration,
// consumer configuration, the task's definition, the call. A key that a layer sets, even to zero or
// false, overrides the layers before.
func Merge(layers ...Metadata) Metadata {
	var m Metadata
	first := true // there is nothing to override yet
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

// Overlay sets in m every key that upper sets.
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
	m.FairnessKey = upper.FairnessKey.over(m.FairnessKey)
	m.FairnessWeight = upper.FairnessWeight.over(m.FairnessWeight)
	m.NotBefore = upper.NotBefore.over(m.NotBefore)
	m.Expires = upper.Expires.over(m.Expires)
}

// IsZero reports whether no key is set.
func (m *Metadata) IsZero() bool {
	some := m.Queue.set || m.MaxRetries.set || m.RetryDelay.set || m.Retry.set || m.RateLimit.set || m.TimeLimit.set ||
		m.SoftTimeLimit.set || m.IgnoreResult.set || m.Idempotent.set || m.DeadLetter.set || m.Serializer.set || m.Compression.set ||
		m.ResultStore.set || m.ResultTTL.set || m.Priority.set || m.FairnessKey.set || m.FairnessWeight.set ||
		m.NotBefore.set || m.Expires.set
	return !some
}

// Limits of metadata values. Check refuses larger ones at the producer; a consumer reduces them to
// the limit.
const (
	MaxPriority       = 1<<31 - 1
	MaxFairnessWeight = naming.MaxWeight
	MaxTimeLimit      = 10 * 365 * 24 * time.Hour
)

// Check returns all problems of m, joined, or nil. They wrap [ErrBadMetadata] or [ErrBadName]. The
// producer calls it before any I/O.
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
		bad("priority", fmt.Sprintf("%d, want 0 to %d", p, MaxPriority))
	}
	if k := m.FairnessKey.Or(""); !naming.ValidKey(k) {
		errs = append(errs, fmt.Errorf("%w: fairness_key %q is not at most %d bytes of UTF-8 without control characters", ErrBadMetadata, clip(k, 32), naming.MaxKey))
	}
	if w, ok := m.FairnessWeight.Get(); ok && (w < 1 || w > MaxFairnessWeight) {
		bad("fairness_weight", fmt.Sprintf("%d, want 1 to %d", w, MaxFairnessWeight))
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

// ParseRate parses a rate such as "10/s", "600/m" or "5000/h": n starts in each period per. It
// returns 0, 0 for "", which means no limit. Returns an error that wraps [ErrBadMetadata].
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
