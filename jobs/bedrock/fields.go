package bedrock

import (
	"encoding/json"
	"iter"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/task"
)

// The priorities of the protocol, where the highest number comes first. The Priority of a job is
// topPriority minus this number, since there the lowest comes first.
const (
	topPriority     = 1000
	defaultPriority = 500
)

// fields are the arguments of a command: the headers of a request, or one object of a list. The
// methods return a statusError for invalid values.
type fields struct{ *request }

// number returns the value of a field that must be a whole number above zero. Returns a statusError
// if the field is missing, malformed or 0.
func (f fields) number(name string) (int64, error) {
	text := f.get(name)
	if text == nil {
		return 0, missing(name)
	}
	n, ok := whole(text)
	if !ok || n == 0 {
		return 0, malformed(name)
	}
	return n, nil
}

// id returns the id in the required field jobID. Returns a statusError if it is missing or
// malformed.
func (f fields) id() (jobs.ID, error) {
	n, err := f.number("jobID")
	return jobs.ID(n), err
}

// name returns the job name in the required field name. Returns a statusError if it is missing or
// not a valid name.
func (f fields) name() (string, error) {
	text := f.get("name")
	if text == nil {
		return "", missing("name")
	}
	return f.text("name")
}

// text returns the value of a field that contains a name or a key. "" means that the field is
// missing. Returns a statusError for a value that is not valid as a name of a job.
func (f fields) text(name string) (string, error) {
	text := f.get(name)
	if text == nil {
		return "", nil
	}
	if s := string(text); jobstore.CheckName(s) == nil {
		return s, nil
	}
	return "", malformed(name)
}

// data returns a copy of the JSON object in the field data. nil means that the field is missing. An
// empty array counts as an empty object. Returns a statusError for any other value.
func (f fields) data() ([]byte, error) {
	text := trim(f.get("data"))
	switch {
	case len(text) == 0:
		return nil, nil
	case emptyList(text): // some languages encode an object without fields in this way
		return []byte("{}"), nil
	case !object(text) || !utf8.Valid(text):
		return nil, statusError("402 Data is not a valid JSON Object")
	}
	return append([]byte(nil), text...), nil
}

// time returns the time in a field, from "YYYY-MM-DD" or "YYYY-MM-DD HH:MM:SS" in UTC. Zero means
// that the field is missing. Returns a statusError for another format.
func (f fields) time(name string) (time.Time, error) {
	text := string(f.get(name))
	switch len(text) {
	case 0:
		return time.Time{}, nil
	case len(time.DateOnly):
		if t, err := time.Parse(time.DateOnly, text); err == nil {
			return t, nil
		}
	case len(timeForm):
		if t, err := time.Parse(timeForm, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, malformed(name)
}

// priority returns the Priority of a job, converted from the first of these fields that is set: the
// protocol counts from 0 to 1000 with the highest first. Unset means that no field is set. Returns
// a statusError unless the value is 0, 250, 500, 750, 850 or 1000.
func (f fields) priority(names ...string) (task.Opt[int], error) {
	for _, name := range names {
		if text := f.get(name); text != nil {
			switch n, ok := whole(text); {
			case ok && (n == 0 || n == 250 || n == 500 || n == 750 || n == 850 || n == 1000):
				return task.Set(topPriority - int(n)), nil
			default:
				return task.Opt[int]{}, statusError("402 Invalid priority value")
			}
		}
	}
	return task.Opt[int]{}, nil
}

// delay returns the whole number of seconds in the field delay. 0 means that the field is missing
// or 0. Returns a statusError for a negative or malformed value, and for one of more than 8 digits.
func (f fields) delay() (time.Duration, error) {
	text := f.get("delay")
	switch n, ok := whole(text); {
	case text == nil:
		return 0, nil
	case ok && len(text) <= 8:
		return time.Duration(n) * time.Second, nil
	case len(text) > 1 && text[0] == '-':
		if _, ok := whole(text[1:]); ok {
			return 0, statusError("402 Must specify a non-negative delay when retrying")
		}
	}
	return 0, malformed("delay")
}

// list splits a text at its commas. It removes blanks before items, but not behind them, and skips
// empty items. It returns at most most plus one items, so that a result longer than most means too
// many items.
func list(text []byte, most int) (items []string) {
	for len(text) > 0 && len(items) <= most {
		i := 0
		for i < len(text) && text[i] != ',' {
			i++
		}
		item := text[:i]
		for len(item) > 0 && isBlank(item[0]) {
			item = item[1:]
		}
		if len(item) > 0 {
			items = append(items, string(item))
		}
		text = text[min(i+1, len(text)):]
	}
	return items
}

// errInvalidJSON is the status for a malformed list of jobs.
const errInvalidJSON statusError = "401 Invalid JSON"

// maxJobs limits the number of jobs that one request may create.
const maxJobs = 10_000

// maxFields limits the number of fields of an object in a list.
const maxFields = maxHeaders

// objects checks a JSON list of objects, and returns their number and an iterator over them, each
// as the headers of a request. It does not copy the list. A yielded value is valid until the next
// one.
//
// Returns a statusError for invalid JSON, an empty list, and an element that is not an object with
// fields. The limits are maxJobs objects, and maxFields fields in each.
func objects(text []byte) (n int, all iter.Seq[fields], err error) {
	if at := blanks(text, 0); at == len(text) || text[at] != '[' || !json.Valid(text) {
		return 0, nil, errInvalidJSON
	}
	for object := range elements(text) {
		if n++; n > maxJobs {
			return 0, nil, statusError("402 Too many jobs")
		}
		size := 0
		if object[0] == '{' {
			for range elements(object) {
				size++
			}
		}
		switch {
		case size == 0:
			return 0, nil, errInvalidJSON
		case size > maxFields:
			return 0, nil, statusError("402 Too many fields")
		}
	}
	if n == 0 {
		return 0, nil, errInvalidJSON
	}
	return n, func(yield func(fields) bool) {
		r := &request{}
		for object := range elements(text) {
			r.headers = r.headers[:0]
			for m := range members(object) {
				r.headers = append(r.headers, header{m.key, plain(m.value())})
			}
			if !yield(fields{r}) {
				return
			}
		}
	}, nil
}

// plain returns a JSON value as a header would contain it: a string without quotes, nil for null,
// any other value unchanged.
func plain(value []byte) []byte {
	switch {
	case string(value) == "null":
		return nil
	case value[0] == '"':
		return plainString(value)
	}
	return value
}
