package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/internal/errand"
	"github.com/swarmiji/swarmiji/task"
)

// metadata writes what a call sets as a JSON object: the names of the keys, durations in milliseconds. When a task may start and until
// when is the schedule's business, so that these two keys do not travel.
type metadata task.Metadata

// option is one key.
type option struct {
	name  string
	value func() (any, bool)
	read  func(json.RawMessage) error
}

// options are the keys that travel.
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
	}
}

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

// MarshalJSON implements json.Marshaler.
func (m metadata) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	for _, o := range m.options() {
		if v, ok := o.value(); ok {
			fields[o.name] = v
		}
	}
	return errand.Marshal(fields)
}

// UnmarshalJSON implements json.Unmarshaler. Keys of newer writers are left alone.
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

// travels returns why a call cannot be kept in a schedule, or nil.
func travels(c *task.Call) error {
	var errs []error
	refuse := func(is bool, what string) {
		if is {
			errs = append(errs, fmt.Errorf("%w: a scheduled call has no %s", ErrUnsupported, what))
		}
	}
	refuse(c.ID != "", "id of its own: each tick has one, see TickID")
	refuse(c.Parent != "" || c.Root != "" || c.Member != nil, "place in a workflow: submit the workflow from its handler")
	refuse(len(c.Then)+len(c.Else) > 0, "successors: submit the workflow from its handler")
	refuse(c.Conditions != nil, "conditions: submit the task that has them from its handler")
	refuse(c.Unique != nil, "unique key: each tick has an id of its own, and is submitted again only while that is in doubt")
	refuse(c.Meta.NotBefore.IsSet() || c.Meta.Expires.IsSet(), "NotBefore and Expires: the schedule says when, and WithMisfire what is too late")
	refuse(c.Meta.Serializer.IsSet(), "serializer: arguments are kept as JSON")
	return errors.Join(append(errs, c.Meta.Check(), checkText("job", c.Name, 255))...)
}
