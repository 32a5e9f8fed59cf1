package hworkerbroker

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/messagecode"
)

// extras is the member "swj" of a job: the parts of a message besides its body. Parts with the
// default value are left out.
type extras struct {
	ID          string            `json:"id,omitempty"` // if the body is not a task with this id
	Generation  int               `json:"generation,omitempty"`
	ContentType *string           `json:"content_type,omitempty"` // if it is not application/json
	Headers     map[string]any    `json:"headers,omitempty"`      // see encodeHeader
	Properties  map[string]string `json:"properties,omitempty"`
	// if it is not 100; the order of jobs ignores it
	Priority *int   `json:"priority,omitempty"`
	Key      string `json:"key,omitempty"`
	Weight   int    `json:"weight,omitempty"`
	Expires  int64  `json:"expires_ms,omitempty"` // since 1970
	Base64   bool   `json:"base64,omitempty"`     // if the body cannot be the job itself
}

// empty reports whether no part is set.
func (x *extras) empty() bool {
	return x.ID == "" && x.Generation == 0 && x.ContentType == nil && x.Headers == nil && x.Properties == nil &&
		x.Priority == nil && x.Key == "" && x.Weight == 0 && x.Expires == 0 && !x.Base64
}

// decodeExtras reads the extras beside a uuid into x. It returns an error if text is not JSON, has
// text after the JSON, or holds the member base64.
func decodeExtras(text string, x *extras) error {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(x); err != nil {
		return err
	}
	if x.Base64 || dec.InputOffset() != int64(len(text)) {
		return errors.New("unexpected text after the extras")
	}
	return nil
}

// extrasOf returns the parts of m besides its body. Returns ErrMalformed for a negative
// generation, a header of another type, or a Key or Weight that is not valid. Returns it too for an
// id, content type, property or header text that is not UTF-8.
func extrasOf(m *broker.Message) (*extras, error) {
	if m.Generation < 0 {
		return nil, fmt.Errorf("generation %d: %w", m.Generation, broker.ErrMalformed)
	}
	if err := broker.CheckFairness(m); err != nil {
		return nil, err
	}
	x := &extras{Generation: m.Generation, Key: m.Key, Weight: m.Weight}
	if m.ID != taskID(m.Body) {
		x.ID = m.ID
	}
	if m.ContentType != contentJSON {
		x.ContentType = &m.ContentType
	}
	if m.Priority != defaultPriority {
		x.Priority = &m.Priority
	}
	if !m.Expires.IsZero() {
		x.Expires = m.Expires.UnixMilli()
	}
	if len(m.Properties) > 0 {
		x.Properties = m.Properties
	}
	texts := []string{m.ID, m.ContentType}
	for k, v := range m.Properties {
		texts = append(texts, k, v)
	}
	for k, v := range m.Headers {
		if x.Headers == nil {
			x.Headers = make(map[string]any, len(m.Headers))
		}
		var ok bool
		if x.Headers[k], ok = encodeHeader(v); !ok {
			return nil, fmt.Errorf("header %q has the type %T, which cannot be stored: %w", k, v, broker.ErrMalformed)
		}
		texts = append(texts, k)
		if s, isText := v.(string); isText {
			texts = append(texts, s)
		}
	}
	for _, s := range texts {
		if !utf8.ValidString(s) { // JSON would change it without an error
			return nil, fmt.Errorf("text %.32q is not UTF-8: %w", s, broker.ErrMalformed)
		}
	}
	return x, nil
}

// apply sets the parts in m; parts that x does not hold keep their values, except ID and
// Generation. It returns an error for a negative generation or a header that cannot be decoded; m
// may be half set then.
func (x *extras) apply(m *broker.Message) error {
	if x.Generation < 0 {
		return errors.New("a negative generation")
	}
	m.ID, m.Generation = x.ID, x.Generation
	if x.ContentType != nil {
		m.ContentType = *x.ContentType
	}
	if x.Priority != nil {
		m.Priority = *x.Priority
	}
	messagecode.SetKey(m, x.Key, int64(x.Weight))
	if x.Expires != 0 {
		m.Expires = time.UnixMilli(x.Expires).UTC()
	}
	if len(x.Properties) > 0 {
		m.Properties = x.Properties
	}
	for k, v := range x.Headers {
		if m.Headers == nil {
			m.Headers = make(map[string]any, len(x.Headers))
		}
		var err error
		if m.Headers[k], err = decodeHeader(v); err != nil {
			return fmt.Errorf("header %q: %w", k, err)
		}
	}
	return nil
}

// Headers of types that JSON cannot distinguish are objects with one of these members.
const (
	bytesMember = "bytes" // in base64
	floatMember = "float" // a text, because it may not be a number in JSON
)

// encodeHeader returns a value that JSON can hold: strings, booleans and integers unchanged, others
// as an object. It returns false for a type that a header cannot have.
func encodeHeader(v any) (any, bool) {
	switch v := v.(type) {
	case string, bool, int64:
		return v, true
	case []byte:
		return map[string][]byte{bytesMember: v}, true
	case float64:
		return map[string]string{floatMember: strconv.FormatFloat(v, 'g', -1, 64)}, true
	}
	return nil, false
}

// decodeHeader returns the header value that encodeHeader has encoded, or an error for any other
// value.
func decodeHeader(v any) (any, error) {
	switch v := v.(type) {
	case string, bool:
		return v, nil
	case json.Number:
		return strconv.ParseInt(v.String(), 10, 64)
	case map[string]any:
		if s, ok := v[floatMember].(string); ok {
			return strconv.ParseFloat(s, 64)
		}
		if s, ok := v[bytesMember].(string); ok {
			return base64.StdEncoding.DecodeString(s)
		}
	}
	return nil, fmt.Errorf("a %T cannot be a header", v)
}
