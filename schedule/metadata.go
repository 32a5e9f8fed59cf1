package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/task"
)

// metadata is the JSON form of a call's metadata: an object with the keys that are set, durations
// in milliseconds. NotBefore and Expires have no key, because the schedule sets the times of a run.
type metadata task.Metadata

// option is one key of the JSON object: its name and functions that return and set its value.
type option struct {
	name  string
	value func() (any, bool)
	read  func(json.RawMessage) error
}

// options returns the keys of the JSON object, bound to the fields of m.
func (m *metadata) options() []option {
	return []option{
		direct("queue", &m.Queue),
		direct("max_retries", &m.MaxRetries),
		duration("retry_delay", &m.RetryDelay),
		direct("retry", &m.Retry),
		direct("rate_limit", &m.RateLimit),
		duration("time_limit", &m.TimeLimit),
		duration("soft_time_limit", &m.SoftTimeLimit),
		direct("ignore_result", &m.IgnoreResult),
		direct("idempotent", &m.Idempotent),
		direct("compression", &m.Compression),
		direct("result_store", &m.ResultStore),
		duration("result_ttl", &m.ResultTTL),
		direct("priority", &m.Priority),
		direct("fairness_key", &m.FairnessKey),
		direct("fairness_weight", &m.FairnessWeight),
	}
}

// direct returns the option for a field of the call's metadata whose JSON form is its own. The
// field is left out of the JSON object if it is not set.
func direct[T any](name string, o *task.Opt[T]) option {
	return option{
		name:  name,
		value: func() (any, bool) { return o.Get() },
		read: func(raw json.RawMessage) error {
			var v T
			err := json.Unmarshal(raw, &v)
			*o = task.Set(v)
			return err
		},
	}
}

// duration returns the option for a duration, written in milliseconds and rounded up. A value that
// is read is limited to 0 to task.MaxTimeLimit. The field is left out of the JSON object if it is
// not set.
func duration(name string, o *task.Opt[time.Duration]) option {
	return option{
		name: name,
		value: func() (any, bool) {
			d, ok := o.Get()
			return (d + time.Millisecond - 1).Milliseconds(), ok
		},
		read: func(raw json.RawMessage) error {
			var ms int64
			err := json.Unmarshal(raw, &ms)
			*o = task.Set(time.Duration(min(max(ms, 0), task.MaxTimeLimit.Milliseconds())) * time.Millisecond)
			return err
		},
	}
}

// MarshalJSON returns a JSON object with only the fields that are set, durations in milliseconds.
// encoding/json calls it.
func (m metadata) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	for _, o := range m.options() {
		if v, ok := o.value(); ok {
			fields[o.name] = v
		}
	}
	return taskio.Marshal(fields)
}

// UnmarshalJSON sets the fields of m from a JSON object. It ignores unknown keys, which newer
// versions may write. A key that is missing or null leaves its field as it was. encoding/json calls
// it.
//
// Returns an error if data is not a JSON object or a value has the wrong type; some fields may be
// set then.
func (m *metadata) UnmarshalJSON(data []byte) error {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	for _, o := range m.options() {
		raw, ok := fields[o.name]
		if !ok || bytes.Equal(raw, []byte("null")) {
			continue
		}
		if err := o.read(raw); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	return nil
}

// checkCall returns an error that joins all reasons why a schedule cannot store the call; nil if it
// can. The error is [ErrUnsupported] for fields that only a single task can have, such as an id or
// successors. It is task.ErrBadMetadata for invalid metadata, and [ErrBadEntry] for a bad name.
func checkCall(c *task.Call) error {
	var errs []error
	refuse := func(is bool, what string) {
		if is {
			errs = append(errs, fmt.Errorf("%w: a scheduled call cannot have %s", ErrUnsupported, what))
		}
	}
	refuse(c.ID != "", "an id: each tick has its own id, see TickID")
	refuse(c.Parent != "" || c.Root != "" || c.Member != nil, "a place in a workflow: submit the workflow from the task's handler")
	refuse(len(c.Then)+len(c.Else) > 0, "successors: submit the workflow from the task's handler")
	refuse(c.Conditions != nil, "conditions: submit the task with conditions from the task's handler")
	refuse(c.Burst != nil, "a burst: submit the task in the handler of the scheduled one")
	refuse(c.Unique != nil, "a unique key: the id of the tick prevents duplicates already")
	refuse(c.Meta.NotBefore.IsSet() || c.Meta.Expires.IsSet(), "NotBefore or Expires: the When sets the time, and WithMisfire the policy for late runs")
	refuse(c.Meta.Serializer.IsSet(), "a serializer: arguments are stored as JSON")
	return errors.Join(append(errs, c.Meta.Check(), checkText("job", c.Name, 255))...)
}
