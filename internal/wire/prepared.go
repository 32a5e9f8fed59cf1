package wire

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

// ErrPrepared is what a task that was prepared, and cannot be read, is refused with.
var ErrPrepared = fmt.Errorf("%w: it is no task that was prepared for a broker", task.ErrBadArgs)

// preparedVersion is the version of the form that [Prepare] writes. A reader refuses a newer one: its message may say what this one would lose.
const preparedVersion = 1

// prepared is a message that is to be published later, as a JSON object. Bytes are in base64, times as RFC 3339 writes them; what a message has not is left out.
type prepared struct {
	Version    int                    `json:"swarmiji"`
	ID         string                 `json:"id"`
	Queue      string                 `json:"queue"`
	Generation int                    `json:"generation,omitempty"`
	Type       string                 `json:"type,omitempty"`
	Priority   int                    `json:"priority"`
	Expires    *time.Time             `json:"expires,omitempty"`
	Headers    map[string]headerValue `json:"headers,omitempty"`
	Properties map[string]string      `json:"properties,omitempty"`
	Body       []byte                 `json:"body"`
}

// headerValue is a value beside its type, which JSON would not keep: {"int":"5"}. Numbers are texts.
type headerValue map[string]string

// Prepare writes a message for a queue, to be published later and elsewhere.
func Prepare(queue string, m *broker.Message) ([]byte, error) {
	p := prepared{
		Version: preparedVersion, ID: m.ID, Queue: queue, Generation: m.Generation, Type: m.ContentType,
		Priority: m.Priority, Properties: m.Properties, Body: m.Body,
	}
	if err := plainText(m); err != nil {
		return nil, err
	}
	if !m.Expires.IsZero() {
		at := m.Expires.UTC()
		p.Expires = &at
	}
	for _, key := range slices.Sorted(maps.Keys(m.Headers)) {
		v, err := writeHeader(m.Headers[key])
		if err != nil {
			return nil, fmt.Errorf("header %q: %w", task.Text(key, 64), err)
		}
		if p.Headers == nil {
			p.Headers = make(map[string]headerValue, len(m.Headers))
		}
		p.Headers[key] = v
	}
	return json.Marshal(&p)
}

// plainText refuses what JSON would change in silence.
func plainText(m *broker.Message) error {
	ok := utf8.ValidString(m.ContentType)
	for key, v := range m.Headers {
		text, _ := v.(string)
		ok = ok && utf8.ValidString(key) && utf8.ValidString(text)
	}
	for key, v := range m.Properties {
		ok = ok && utf8.ValidString(key) && utf8.ValidString(v)
	}
	if !ok {
		return fmt.Errorf("%w: a header or a property is no text in UTF-8, which a task with conditions cannot have", broker.ErrMalformed)
	}
	return nil
}

// ReadPrepared reads what [Prepare] wrote. An error wraps [ErrPrepared].
func ReadPrepared(data []byte) (queue string, m *broker.Message, err error) {
	var p prepared
	if err := json.Unmarshal(data, &p); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrPrepared, err)
	}
	if p.Version != preparedVersion {
		return "", nil, fmt.Errorf("%w: its version is %d, and %d is known", ErrPrepared, p.Version, preparedVersion)
	}
	if err := errors.Join(task.ID(p.ID).Check(), task.CheckName(p.Queue)); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrPrepared, err)
	}
	m = &broker.Message{
		ID: p.ID, Generation: p.Generation, ContentType: p.Type, Properties: p.Properties, Body: p.Body, Priority: p.Priority,
	}
	if p.Expires != nil {
		m.Expires = *p.Expires
	}
	for key, v := range p.Headers {
		value, err := readHeader(v)
		if err != nil {
			return "", nil, fmt.Errorf("%w: header %q: %w", ErrPrepared, task.Text(key, 64), err)
		}
		if m.Headers == nil {
			m.Headers = make(map[string]any, len(p.Headers))
		}
		m.Headers[key] = value
	}
	return p.Queue, m, nil
}

// The types of a header's value.
const (
	headerText  = "text"
	headerBytes = "bytes"
	headerBool  = "bool"
	headerInt   = "int"
	headerFloat = "float"
)

func writeHeader(v any) (headerValue, error) {
	switch v := v.(type) {
	case string:
		return headerValue{headerText: v}, nil
	case []byte:
		return headerValue{headerBytes: base64.StdEncoding.EncodeToString(v)}, nil
	case bool:
		return headerValue{headerBool: strconv.FormatBool(v)}, nil
	case int64:
		return headerValue{headerInt: strconv.FormatInt(v, 10)}, nil
	case float64:
		return headerValue{headerFloat: strconv.FormatFloat(v, 'g', -1, 64)}, nil
	}
	return nil, fmt.Errorf("%w: a value of type %T", broker.ErrMalformed, v)
}

func readHeader(v headerValue) (any, error) {
	if len(v) == 1 {
		for kind, text := range v {
			switch kind {
			case headerText:
				return text, nil
			case headerBytes:
				return base64.StdEncoding.DecodeString(text)
			case headerBool:
				return strconv.ParseBool(text)
			case headerInt:
				return strconv.ParseInt(text, 10, 64)
			case headerFloat:
				return strconv.ParseFloat(text, 64)
			}
		}
	}
	return nil, errors.New("its type is not known")
}
