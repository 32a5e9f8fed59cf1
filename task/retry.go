package task

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RetryPolicy selects which errors of a task every consumer retries without middleware. It travels
// in the task's metadata ([WithRetry]); MaxRetries limits the number. Errors of [Fail], [Retry] and
// [Snooze] are not affected.
//
// An error is known by its names: the names of this package's errors ("swarmiji.TimeLimit", see
// [RemoteError].Type), the name of [Named], and the Go types ("net.OpError") of all errors that it
// wraps.
type RetryPolicy struct {
	// On holds the names of the errors to retry. nil: all but "swarmiji.BadArgs", since another
	// attempt gets the same arguments.
	On []string
	// Except holds names of errors that are not retried although On selects them.
	Except []string
	// Backoff calculates the delays. The zero value: the task's RetryDelay.
	Backoff Backoff
}

// Limits of a [RetryPolicy].
const (
	MaxRetryNames = 32  // names in On and Except together
	maxErrorName  = 128 // bytes of a name
)

// WithRetry sets the policy by which every consumer retries the task's errors. Submit and Handle
// return [ErrBadMetadata] for an invalid policy.
func WithRetry(p RetryPolicy) Option { return func(c *Call) { c.Meta.Retry = Set(p.String()) } }

// WithoutRetry removes a policy that the definition or another layer sets.
func WithoutRetry() Option { return func(c *Call) { c.Meta.Retry = Set("") } }

// Words in the text of a policy.
const (
	policyPlain  = "delay" // the strategy BackoffNone
	policyBase   = "base"
	policyFactor = "factor"
	policyMax    = "max"
	policyJitter = "jitter"
	policyFull   = "full"
	policyOn     = "on"
	policyExcept = "except"
)

// String returns the policy as text, the form in which it travels: the strategy, then all values
// that are not the default. Example: "exponential base=500 max=60000 jitter=full
// on=net.OpError,swarmiji.TimeLimit". Durations are in milliseconds, rounded up. [ParseRetryPolicy]
// reads it.
func (p RetryPolicy) String() string {
	b := make([]byte, 0, 64)
	if p.Backoff.Strategy == BackoffNone {
		b = append(b, policyPlain...)
	} else {
		b = append(b, p.Backoff.Strategy...)
	}
	number := func(key string, n int64) {
		if n != 0 {
			b = strconv.AppendInt(append(append(append(b, ' '), key...), '='), n, 10)
		}
	}
	number(policyBase, ceilMilli(p.Backoff.Base))
	number(policyFactor, int64(p.Backoff.Factor))
	number(policyMax, ceilMilli(p.Backoff.Max))
	if p.Backoff.Jitter {
		b = append(b, " "+policyJitter+"="+policyFull...)
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{policyOn, p.On}, {policyExcept, p.Except}} {
		if len(list.names) > 0 {
			b = append(b, " "+list.key+"="+strings.Join(list.names, ",")...)
		}
	}
	return string(b)
}

func ceilMilli(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// ParseRetryPolicy parses the text of String. Returns an error that wraps [ErrBadMetadata].
func ParseRetryPolicy(s string) (RetryPolicy, error) {
	var p RetryPolicy
	words := strings.Split(s, " ")
	switch p.Backoff.Strategy = Strategy(words[0]); p.Backoff.Strategy {
	case BackoffConstant, BackoffLinear, BackoffExponential:
	case policyPlain:
		p.Backoff.Strategy = BackoffNone
	default:
		return p, fmt.Errorf("%w: retry: strategy %q is not one of delay, constant, linear and exponential", ErrBadMetadata, clip(words[0], 32))
	}
	for i, word := range words[1:] {
		key, value, found := strings.Cut(word, "=")
		if !found || slices.ContainsFunc(words[1:1+i], func(w string) bool { return strings.HasPrefix(w, key+"=") }) {
			return p, fmt.Errorf("%w: retry: %q (want each key once, as key=value)", ErrBadMetadata, clip(word, 64))
		}
		if err := p.set(key, value); err != nil {
			return p, fmt.Errorf("%w: retry: %s: %w", ErrBadMetadata, clip(key, 32), err)
		}
	}
	if len(p.On)+len(p.Except) > MaxRetryNames {
		return p, fmt.Errorf("%w: retry: more than %d names of errors", ErrBadMetadata, MaxRetryNames)
	}
	return p, nil
}

// set parses one key and value of a policy's text into p.
func (p *RetryPolicy) set(key, value string) (err error) {
	switch key {
	case policyBase:
		p.Backoff.Base, err = parseMilli(value)
	case policyMax:
		p.Backoff.Max, err = parseMilli(value)
	case policyFactor:
		p.Backoff.Factor, err = strconv.Atoi(value)
		if err != nil || p.Backoff.Factor < 1 || p.Backoff.Factor > maxBackoffFactor {
			err = fmt.Errorf("%q is not a whole number from 1 to %d", clip(value, 32), maxBackoffFactor)
		}
	case policyJitter:
		if p.Backoff.Jitter = value == policyFull; !p.Backoff.Jitter {
			err = fmt.Errorf("%q is not %q", clip(value, 32), policyFull)
		}
	case policyOn:
		p.On, err = parseErrorNames(value)
	case policyExcept:
		p.Except, err = parseErrorNames(value)
	default:
		err = errors.New("not a key of a retry policy")
	}
	return err
}

func parseMilli(s string) (time.Duration, error) {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil || ms < 1 || ms > MaxTimeLimit.Milliseconds() {
		return 0, fmt.Errorf("%q is not a number of milliseconds above 0 and at most %s", clip(s, 32), MaxTimeLimit)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func parseErrorNames(s string) ([]string, error) {
	names := strings.Split(s, ",")
	for _, name := range names {
		if !validErrorName(name) {
			return nil, fmt.Errorf("%q is not the name of an error (1 to %d visible ASCII characters, no comma)", clip(name, 32), maxErrorName)
		}
	}
	return names, nil
}

func validErrorName(name string) bool {
	if len(name) == 0 || len(name) > maxErrorName {
		return false
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] >= 0x7f || name[i] == ',' {
			return false
		}
	}
	return true
}

// Matches reports whether the policy retries err.
func (p RetryPolicy) Matches(err error) bool {
	if err == nil {
		return false
	}
	names := ErrorNames(err)
	has := func(name string) bool { return slices.Contains(names, name) }
	if slices.ContainsFunc(p.Except, has) {
		return false
	}
	if len(p.On) == 0 {
		return !errors.Is(err, ErrBadArgs)
	}
	return slices.ContainsFunc(p.On, has)
}
