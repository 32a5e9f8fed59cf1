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

// The layout knows one thing: a payload, the JSON array ["<uuid>", <job>]. The uuid is there so that no two payloads are
// equal. A broker.Message has more to say than a job, and other programs must still be able to read the job. So:
//
//	["<uuid>", {"task":"add","args":[1,2]}]                            a body that is JSON, and nothing beside it
//	["<uuid>", {"swj":{"generation":1},"task":"add","args":[1,2]}]     the rest of the message in a first member of its own
//	["<uuid>", {"swj":{"content_type":"text/plain","base64":true},"body":"aGk="}]    a body that is not JSON
//	["<uuid> {\"swj\":{\"generation\":1}}", [1,2]]    the retry of a job that is no task of ours: its bytes stay
//
// A program that passes over members it does not know reads the second as it reads the first. Taking the first member out
// again gives back the body, byte for byte. A job without a name of its own has its id for its
// uuid.

// opening is how a job begins that has such a member. It is always written first and just so.
const opening = `{"swj":`

// contentJSON and middle are what a job without "swj" has for its content type and priority.
const (
	contentJSON = "application/json"
	middle      = 100

	// contentPayload is the content type of a message whose body is a payload that is no message: a
	// dead letter. Published, or imported and put back, it is that payload.
	contentPayload = "application/x-hworker-payload"
)

// beside is what stands between a uuid and the extras of a job whose bytes stay.
const beside = " " + opening

// encode makes the payload of a message. uuid is that of the job it follows; "": it follows none.
func encode(m *broker.Message, uuid string) (string, error) {
	if m.ContentType == contentPayload {
		return string(m.Body), nil
	}
	x, err := extrasOf(m)
	if err != nil {
		return "", err
	}
	if x.ID != "" && taskID(m.Body) == "" && !strings.Contains(x.ID, beside) { // the uuid is its place
		x.ID, uuid = "", m.ID
		if m.Generation > 0 && tight(m.Body) && json.Valid(m.Body) {
			text, err := json.Marshal(x)
			if err != nil {
				return "", fmt.Errorf("%w: %w", broker.ErrMalformed, err)
			}
			return payloadOf(uuid+beside+string(text)+"}", m.Body), nil
		}
	}
	if uuid == "" {
		uuid = newUUID()
	}
	if x.empty() && tight(m.Body) && json.Valid(m.Body) {
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
	job := append(append(make([]byte, 0, len(body)+len(text)+16), opening...), text...)
	if rest := body[1:]; len(bytes.TrimSpace(rest)) > 1 { // it has members of its own
		job = append(job, ',')
	}
	return payloadOf(uuid, append(job, body[1:]...)), nil
}

// payloadOf writes the array.
func payloadOf(uuid string, job []byte) string {
	first, _ := json.Marshal(uuid) // a text cannot fail
	return "[" + string(first) + "," + string(job) + "]"
}

// decode reads a payload of any program. An error means that nobody can: the job is broken.
func decode(payload string) (*broker.Message, error) {
	uuid, job, err := split(payload)
	if err != nil {
		return nil, err
	}
	m := &broker.Message{ContentType: contentJSON, Priority: middle, Body: job}
	x := extras{}
	if id, text, ok := strings.Cut(uuid, beside); ok {
		uuid = id
		if err := decodeExtras(strings.TrimSuffix(text, "}"), &x); err != nil {
			return nil, fmt.Errorf("swj beside the uuid: %w", err)
		}
	} else if rest, ok := bytes.CutPrefix(job, []byte(opening)); ok {
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
			return nil, errors.New("member body: no base64")
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

// split takes a payload apart.
func split(payload string) (uuid string, job json.RawMessage, err error) {
	const blanks = " \t\r\n"
	dec := json.NewDecoder(strings.NewReader(payload))
	first, _ := dec.Token()
	second, _ := dec.Token()
	uuid, isText := second.(string)
	rest, comma := strings.CutPrefix(strings.Trim(payload[dec.InputOffset():], blanks), ",")
	rest, end := strings.CutSuffix(rest, "]")
	job = []byte(strings.Trim(rest, blanks))
	if first != json.Delim('[') || !isText || !comma || !end || !json.Valid(job) { // a third element would not be valid either
		return "", nil, errors.New("not an array of a text and a job")
	}
	return uuid, job, nil
}

// taskID is the id that a task written as JSON has of itself; "" for everything else.
func taskID(body []byte) string {
	var t struct{ Task, ID string }
	if !bytes.Contains(body, []byte(`"task"`)) || json.Unmarshal(body, &t) != nil || t.Task == "" {
		return ""
	}
	return t.ID
}

// bodyIsObject reports whether a member can be put into the body, and taken out again without a trace.
func bodyIsObject(body []byte) bool {
	return tight(body) && body[0] == '{' && !bytes.HasPrefix(body, []byte(opening)) && json.Valid(body)
}

// tight reports whether body would be the same after it was an element of an array.
func tight(body []byte) bool {
	return len(body) > 0 && len(bytes.TrimSpace(body)) == len(body) && utf8.Valid(body) && !bytes.HasPrefix(body, []byte(opening))
}

// newUUID returns a random one, version 4.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// stampLayout is how times are written in the hashes: JSON, with the quotes.
const stampLayout = `"2006-01-02T15:04:05.000000Z"`

// parseStamp reads a time of any writer; the zero time if it is none.
func parseStamp(s string) time.Time {
	var t time.Time
	if json.Unmarshal([]byte(s), &t) != nil {
		return time.Time{}
	}
	return t.UTC()
}
