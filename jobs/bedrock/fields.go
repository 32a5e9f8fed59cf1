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

// The priorities of the protocol, of which the highest goes first. A job's own priority is what is left of topPriority: there the
// lowest goes first.
const (
	topPriority     = 1000
	defaultPriority = 500
)

// fields are what a command is given: the headers of a request, or one object of a list. The methods return a statusError for what
// must not be.
type fields struct{ *request }

// number reads an id, or another number above zero, that has to be there.
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

func (f fields) id() (jobs.ID, error) {
	n, err := f.number("jobID")
	return jobs.ID(n), err
}

// name reads a job's name.
func (f fields) name() (string, error) {
	text := f.get("name")
	if text == nil {
		return "", missing("name")
	}
	return f.text("name")
}

// text reads a name or a key; "": there is none.
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

// data reads a job's data; nil: there are none.
func (f fields) data() ([]byte, error) {
	text := trim(f.get("data"))
	switch {
	case len(text) == 0:
		return nil, nil
	case emptyList(text): // what some languages write for an object without fields
		return []byte("{}"), nil
	case !object(text) || !utf8.Valid(text):
		return nil, statusError("402 Data is not a valid JSON Object")
	}
	return append([]byte(nil), text...), nil
}

// time reads a time in UTC, as "YYYY-MM-DD" or "YYYY-MM-DD HH:MM:SS". Zero: there is none.
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

// priority reads a job's priority under one of these names, the first that is there, and turns it round.
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

// delay reads a number of seconds.
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

// list splits a text at its commas. Blanks before an item, and items without anything else, are
// left out. It stops after one item more than most.
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

// errInvalidJSON is what a list of jobs is that cannot be read.
const errInvalidJSON statusError = "401 Invalid JSON"

// maxJobs is how many jobs one request may make.
const maxJobs = 10_000

// maxFields is how many fields an object of a list may have.
const maxFields = maxHeaders

// objects reads a list of n objects, each as if it were the headers of a request. It checks the
// whole list first, and does not copy it. Fields are valid until the next ones.
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

// plain is a JSON value as a header would hold it: a string without its quotes, anything else as it is, and nothing for null.
func plain(value []byte) []byte {
	switch {
	case string(value) == "null":
		return nil
	case value[0] == '"':
		return plainString(value)
	}
	return value
}
