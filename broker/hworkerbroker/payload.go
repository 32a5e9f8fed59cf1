package hworkerbroker

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
)

// The layout has only payloads, the JSON array ["<uuid>", <job>]. The uuid makes all payloads
// different. A broker.Message has more parts than a job, and other programs must still be able to
// read the job. So there are these forms:
//
// 	["<uuid>", {"task":"add","args":[1,2]}]
// 	    a JSON body without further parts
// 	["<uuid>", {"swj":{"generation":1},"task":"add","args":[1,2]}]
// 	    the other parts of the message in a separate first member
// 	["<uuid>", {"swj":{"content_type":"text/plain","base64":true},"body":"aGk="}]
// 	    a body that is not JSON
// 	["<uuid> {\"swj\":{\"generation\":1}}", [1,2]]
// 	    the retry of a job that is not a task of ours: its bytes stay unchanged
//
// A program that ignores unknown members reads the second form like the first. Removing the first
// member returns the body, byte for byte. A job without its own id has its message's id as the
// uuid.

// extrasOpening is the beginning of a job with the member "swj". It is always the first member, in
// exactly this form.
const extrasOpening = `{"swj":`

// contentJSON and defaultPriority are the content type and the priority of a job without "swj".
const (
	contentJSON     = "application/json"
	defaultPriority = 100

	// contentPayload is the content type of a dead letter whose body is a payload that is not a
	// message. If it is published, or imported and requeued, its payload is the body.
	contentPayload = "application/x-hworker-payload"
)

// uuidExtras separates a uuid from the extras of a job whose bytes stay unchanged.
const uuidExtras = " " + extrasOpening

// encode returns the payload of m in one of the forms above. uuid is that of the job which m
// follows, or "" for a random one. If the body holds no id of its own, the id of m becomes the
// uuid. The body of a dead letter with contentPayload is the payload, unchanged. Returns
// ErrMalformed if m cannot be encoded, see extrasOf.
func encode(m *broker.Message, uuid string) (string, error) {
	if m.ContentType == contentPayload {
		return string(m.Body), nil
	}
	x, err := extrasOf(m)
	if err != nil {
		return "", err
	}
	// the id is stored as the uuid
	if x.ID != "" && taskID(m.Body) == "" && !strings.Contains(x.ID, uuidExtras) {
		x.ID, uuid = "", m.ID
		if m.Generation > 0 && survivesArray(m.Body) && json.Valid(m.Body) {
			text, err := json.Marshal(x)
			if err != nil {
				return "", fmt.Errorf("%w: %w", broker.ErrMalformed, err)
			}
			return payloadOf(uuid+uuidExtras+string(text)+"}", m.Body), nil
		}
	}
	if uuid == "" {
		uuid = newUUID()
	}
	if x.empty() && survivesArray(m.Body) && json.Valid(m.Body) {
		return payloadOf(uuid, m.Body), nil
	}
	body, spliced := m.Body, bodyIsObject(m.Body)
	if !spliced {
		x.Base64 = true
		body = make([]byte, 0, len(`{"body":""}`)+base64.StdEncoding.EncodedLen(len(m.Body)))
		body = append(body, `{"body":"`...)
		body = append(base64.StdEncoding.AppendEncode(body, m.Body), `"}`...)
	}
	text, err := json.Marshal(x)
	if err != nil {
		return "", fmt.Errorf("%w: %w", broker.ErrMalformed, err)
	}
	job := append(append(make([]byte, 0, len(body)+len(text)+16), extrasOpening...), text...)
	if rest := body[1:]; len(bytes.TrimSpace(rest)) > 1 { // the body has further members
		job = append(job, ',')
	}
	return payloadOf(uuid, append(job, body[1:]...)), nil
}

// payloadOf returns the JSON array of uuid and job.
func payloadOf(uuid string, job []byte) string {
	first, _ := json.Marshal(uuid) // encoding a string cannot fail
	return "[" + string(first) + "," + string(job) + "]"
}

// decode returns the message in a payload of any program. The ID is that in the extras, or else
// the task's id in the body, or else the uuid. Parts that the payload does not hold have their
// defaults: JSON and priority 100.
//
// Returns an error, which means that the job is broken, in these cases:
//
//   - The payload is not an array of a uuid and a job.
//   - The extras cannot be read.
//   - The extras say that the body is base64, and it is not.
func decode(payload string) (*broker.Message, error) {
	uuid, job, err := split(payload)
	if err != nil {
		return nil, err
	}
	m := &broker.Message{ContentType: contentJSON, Priority: defaultPriority, Body: job}
	x := extras{}
	if id, text, ok := strings.Cut(uuid, uuidExtras); ok {
		uuid = id
		if err := decodeExtras(strings.TrimSuffix(text, "}"), &x); err != nil {
			return nil, fmt.Errorf("swj beside the uuid: %w", err)
		}
	} else if rest, ok := bytes.CutPrefix(job, []byte(extrasOpening)); ok {
		dec := json.NewDecoder(bytes.NewReader(rest))
		dec.UseNumber()
		if err := dec.Decode(&x); err != nil {
			return nil, fmt.Errorf("member swj: %w", err)
		}
		rest = bytes.TrimPrefix(rest[dec.InputOffset():], []byte(","))
		m.Body = append([]byte{'{'}, rest...)
	}
	if x.Base64 {
		text, ok1 := bytes.CutPrefix(m.Body, []byte(`{"body":"`))
		text, ok2 := bytes.CutSuffix(text, []byte(`"}`))
		body, err := base64.StdEncoding.AppendDecode(nil, text)
		if !ok1 || !ok2 || err != nil {
			return nil, errors.New("member body: not base64")
		}
		m.Body = body
	}
	if err := x.apply(m); err != nil {
		return nil, fmt.Errorf("member swj: %w", err)
	}
	if m.ID == "" {
		m.ID = taskID(m.Body)
	}
	if m.ID == "" {
		m.ID = uuid
	}
	return m, nil
}

// split returns the uuid and the job of a payload. It returns an error if the payload is not an
// array of a string and one JSON value.
func split(payload string) (uuid string, job json.RawMessage, err error) {
	const blanks = " \t\r\n"
	dec := json.NewDecoder(strings.NewReader(payload))
	first, _ := dec.Token()
	second, _ := dec.Token()
	uuid, isText := second.(string)
	rest, comma := strings.CutPrefix(strings.Trim(payload[dec.InputOffset():], blanks), ",")
	rest, end := strings.CutSuffix(rest, "]")
	job = []byte(strings.Trim(rest, blanks))
	// a third element would not be valid JSON either
	if first != json.Delim('[') || !isText || !comma || !end || !json.Valid(job) {
		return "", nil, errors.New("not an array of a string and a job")
	}
	return uuid, job, nil
}

// taskID returns the member "id" of body if body is a task in JSON: an object with a task name. It
// returns "" for any other body.
func taskID(body []byte) string {
	var t struct{ Task, ID string }
	if !bytes.Contains(body, []byte(`"task"`)) || json.Unmarshal(body, &t) != nil || t.Task == "" {
		return ""
	}
	return t.ID
}

// bodyIsObject reports whether body is a JSON object to which the member "swj" can be added in
// front, and removed again without a trace.
func bodyIsObject(body []byte) bool {
	return survivesArray(body) && body[0] == '{' && !bytes.HasPrefix(body, []byte(extrasOpening)) && json.Valid(body)
}

// survivesArray reports whether decode returns body unchanged after it was written as the job of a
// payload. It does not if body is empty, begins or ends with white space, is not UTF-8, or begins
// like a job with the member "swj". It does not check that body is JSON.
func survivesArray(body []byte) bool {
	return len(body) > 0 && len(bytes.TrimSpace(body)) == len(body) && utf8.Valid(body) && !bytes.HasPrefix(body, []byte(extrasOpening))
}

// newUUID returns a random UUID of version 4.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// stampLayout is the format of times in the hashes: JSON, with the quotes.
const stampLayout = `"2006-01-02T15:04:05.000000Z"`

// parseStamp returns the time that any program has written as s, the zero time if s cannot be read.
func parseStamp(s string) time.Time {
	var t time.Time
	if json.Unmarshal([]byte(s), &t) != nil {
		return time.Time{}
	}
	return t.UTC()
}
