package jobs

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// DefaultAttemptTimeout is the default time limit of an attempt of a job of a queue, and of the
// wait for an answer.
const DefaultAttemptTimeout = 24 * time.Hour

// draftQueue checks the fields of a spec that concern queues, keys and answers, and copies them to
// its job j. For a job of a queue, Weight is converted to thousandths, and the defaults of Weight
// and Timeout are set. Returns a FieldError for the first invalid field, or for two fields that
// exclude each other. j is then changed in part.
func (s *Service) draftQueue(j *Row, spec *Spec) error {
	j.Queue, j.Key, j.UniqueKey, j.Respond = spec.Queue, spec.Key, spec.UniqueKey, spec.Respond
	if err := checkKeyField("key", spec.Key); err != nil {
		return err
	}
	if err := checkKeyField("uniqueKey", spec.UniqueKey); err != nil {
		return err
	}
	if spec.Unique && (spec.Queue != "" || spec.Key != "" || spec.UniqueKey != "") {
		return &FieldError{Field: "unique", Problem: "not together with queue, key or uniqueKey"}
	}
	if spec.Queue == "" {
		return onlyInQueue(spec)
	}
	if err := rules.CheckField("queue", spec.Queue, false); err != nil {
		return err
	}
	switch {
	case spec.RetryAfter != "":
		return &FieldError{Field: "retryAfter", Problem: "not together with queue"}
	case spec.Parent != 0:
		return &FieldError{Field: "parentJobID", Problem: "not together with queue"}
	case spec.Mock:
		return &FieldError{Field: "mock", Problem: "not together with queue"}
	}
	var err error
	if j.Weight, err = thousandths(spec.Weight.Or(1)); err != nil {
		return err
	}
	if j.Timeout, err = checkTimeout(spec.Timeout.Or(DefaultAttemptTimeout)); err != nil {
		return err
	}
	if spec.Windows != nil {
		j.Window = spec.Windows.String()
	}
	return nil
}

// onlyInQueue returns a FieldError if a spec, which has no queue, sets Weight, Timeout or Windows.
// These require a queue.
func onlyInQueue(spec *Spec) error {
	var field string
	switch {
	case spec.Weight.IsSet():
		field = "weight"
	case spec.Timeout.IsSet():
		field = "timeout"
	case spec.Windows != nil:
		field = "windows"
	default:
		return nil
	}
	return &FieldError{Field: field, Problem: "only together with queue"}
}

// checkKeyField returns a FieldError for the field of this name if key has more than MaxKey bytes,
// or is not UTF-8 without a NUL. "" is valid.
func checkKeyField(field, key string) error {
	switch {
	case len(key) > MaxKey:
		return rules.LongerThan(field, len(key), MaxKey)
	case jobstore.CheckKey(key) != nil:
		return &FieldError{Field: field, Problem: rules.Malformed}
	}
	return nil
}

// checkTimeout returns d rounded up to microseconds. Returns a FieldError if d is negative or above
// task.MaxTimeLimit.
func checkTimeout(d time.Duration) (time.Duration, error) {
	if d < 0 || d > task.MaxTimeLimit {
		return 0, &FieldError{Field: "timeout", Problem: rules.Malformed, Detail: fmt.Sprintf("%s is not from 0 to %s", d, task.MaxTimeLimit)}
	}
	return rules.WholeMicros(d), nil
}

// thousandths converts a weight to thousandths, rounded up. It uses the decimal digits, since 1.1
// times 1000 is slightly above 1100 in binary. Returns a FieldError for NaN, a number below 0, or
// one above MaxWeight/1000, as MaxWeight is in thousandths.
func thousandths(weight float64) (int64, error) {
	bad := &FieldError{Field: "weight", Problem: rules.Malformed, Detail: fmt.Sprintf("%v is not from 0 to %d", weight, MaxWeight/1000)}
	if math.IsNaN(weight) || weight < 0 || weight > float64(MaxWeight/1000) {
		return 0, bad
	}
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(weight, 'f', -1, 64), ".")
	rest := ""
	if len(fraction) > 3 {
		fraction, rest = fraction[:3], fraction[3:]
	}
	n, err := strconv.ParseInt(whole+fraction+"000"[len(fraction):], 10, 64)
	if err != nil {
		return 0, bad
	}
	if strings.Trim(rest, "0") != "" {
		n++
	}
	return min(n, MaxWeight), nil
}
