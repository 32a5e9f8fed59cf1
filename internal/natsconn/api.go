package natsconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/swarmiji/swarmiji/internal/wake"
)

const (
	apiPrefix = "$JS.API."
	// apiTimeout limits the wait for one answer, because a leader that has just died never answers.
	// The request is then repeated if that is allowed.
	apiTimeout = 5 * time.Second
	// apiPause is the time between two attempts.
	apiPause = 50 * time.Millisecond
)

// Stored is a message of a stream.
type Stored struct {
	Subject string
	Seq     uint64
	Header  nats.Header
	Data    []byte
	Time    time.Time // time at which the stream stored it
}

// API sends a request of the JetStream API, waits for its answer and decodes it into resp, which
// may be nil. The argument what holds the rest of the subject after $JS.API., such as
// "STREAM.MSG.GET.S". The request is repeated until ctx ends if its answer is lost or the server
// cannot serve now. Use it only for requests that may be executed twice.
//
// The server's error answer is returned with its class, for example [ErrNotFound]. When ctx ends,
// API returns the error of the last attempt, [ErrUnavailable] or [ErrIndeterminate].
func (c *Conn) API(ctx context.Context, what string, req, resp any) error {
	_, err := c.ask(ctx, what, req, resp)
	return err
}

// change sends a request that changes data, like API. It returns [ErrIndeterminate] if an earlier
// attempt may have been executed, even if no connection existed afterwards. A repeated request gets
// the answer to its last attempt only.
func (c *Conn) change(ctx context.Context, what string, req, resp any) error {
	sent, err := c.ask(ctx, what, req, resp)
	if sent && errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w: %s", ErrIndeterminate, err.Error()) // only one of the two classes
	}
	return err
}

// ask sends a request like API and returns the same errors. sent reports whether an attempt without
// an answer may have reached the server.
func (c *Conn) ask(ctx context.Context, what string, req, resp any) (sent bool, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return false, fmt.Errorf("nats %s: %w", what, err)
	}
	return c.repeat(ctx, what, func(ctx context.Context, s *Session) error { return request(ctx, s.NATS, what, body, resp) })
}

// repeat calls try until it succeeds, with apiTimeout for each attempt and apiPause between two. It
// repeats only after [ErrUnavailable] and [ErrIndeterminate], and while ctx lasts. It returns the
// error of the last attempt. sent reports whether an attempt without an answer may have reached the
// server.
func (c *Conn) repeat(ctx context.Context, what string, try func(ctx context.Context, s *Session) error) (sent bool, err error) {
	for {
		err = c.Do(ctx, func(ctx context.Context, s *Session) error {
			ctx, cancel := context.WithTimeout(ctx, apiTimeout)
			defer cancel()
			return try(ctx, s)
		})
		if err == nil {
			return sent, nil
		}
		sent = sent || errors.Is(err, ErrIndeterminate)
		if !isAny(err, ErrUnavailable, ErrIndeterminate) || ctx.Err() != nil || !wake.Sleep(ctx, apiPause) {
			return sent, fmt.Errorf("nats %s: %w", what, err)
		}
	}
}

// request sends one request of the JetStream API, waits for its answer until ctx ends, and decodes
// it into resp, which may be nil. An error answer is returned as a *jetstream.APIError. An answer
// that is not JSON of the right form is errAnswer.
func request(ctx context.Context, nc *nats.Conn, what string, body []byte, resp any) error {
	m, err := nc.RequestWithContext(ctx, apiPrefix+what, body)
	if err != nil {
		return err
	}
	var e struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return errAnswer
	}
	if e.Error != nil {
		return e.Error
	}
	if resp == nil {
		return nil
	}
	if err := json.Unmarshal(m.Data, resp); err != nil {
		return errAnswer
	}
	return nil
}

// StreamTime reads the time of the server that leads a stream, and repeats the request like API. It
// also returns the local times just before and just after the request, with readings of the
// monotonic clock. A server before 2.10 does not send its time: told is zero. It waits for the
// server and returns the errors of API.
func (c *Conn) StreamTime(ctx context.Context, stream string) (told, asked, heard time.Time, err error) {
	var resp struct {
		Time time.Time `json:"ts"`
	}
	what := "STREAM.INFO." + stream
	_, err = c.repeat(ctx, what, func(ctx context.Context, s *Session) error {
		asked = time.Now()
		err := request(ctx, s.NATS, what, nil, &resp)
		heard = time.Now()
		return err
	})
	return resp.Time, asked, heard, err
}

// GetLast returns the newest message of a subject, which may have wildcards, from the stream's
// leader. It waits like API. Returns [ErrNotFound] if no message exists, [ErrNoStream] without the
// stream.
func (c *Conn) GetLast(ctx context.Context, stream, subject string) (*Stored, error) {
	return c.get(ctx, stream, map[string]any{"last_by_subj": subject})
}

// GetNext returns the oldest message of a subject, which may have wildcards, with at least sequence
// seq, from the stream's leader. It waits like API. Returns [ErrNotFound] if no message exists,
// [ErrNoStream] without the stream.
func (c *Conn) GetNext(ctx context.Context, stream, subject string, seq uint64) (*Stored, error) {
	return c.get(ctx, stream, map[string]any{"next_by_subj": subject, "seq": max(seq, 1)})
}

// get reads one message of a stream from its leader, and waits like API. Returns [ErrNotFound] if
// no message matches req, and an error without a class if its headers cannot be decoded.
func (c *Conn) get(ctx context.Context, stream string, req map[string]any) (*Stored, error) {
	var resp struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Hdrs    []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := c.API(ctx, "STREAM.MSG.GET."+stream, req, &resp); err != nil {
		return nil, err
	}
	m := resp.Message
	st := &Stored{Subject: m.Subject, Seq: m.Seq, Data: m.Data, Time: m.Time}
	if len(m.Hdrs) > 0 {
		h, err := nats.DecodeHeadersMsg(m.Hdrs)
		if err != nil {
			return nil, fmt.Errorf("nats message %d of stream %s: %w", m.Seq, stream, err)
		}
		st.Header = h
	}
	return st, nil
}

// DeleteSeq removes a message from a stream and waits for the answer. It repeats the request like
// API. Returns [ErrNotFound] if the message does not exist, also because an attempt whose answer
// was lost has removed it. After [ErrIndeterminate] the message may have been removed.
func (c *Conn) DeleteSeq(ctx context.Context, stream string, seq uint64) error {
	err := c.change(ctx, "STREAM.MSG.DELETE."+stream, map[string]any{"seq": seq, "no_erase": true}, nil)
	switch c := Code(err); {
	case c == codeNoMessage, c == codeDeleteFailed && strings.Contains(err.Error(), "not found"):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// Take removes the message with sequence seq in one attempt and waits for the answer. It reports
// whether the message existed: of several concurrent calls exactly one returns true. After
// [ErrIndeterminate] the message may have been removed. The caller must know that the stream was
// not created again.
//
// Take does not use Purge: after a Purge the server forgets messages that consumers of the stream
// have returned.
func (c *Conn) Take(ctx context.Context, stream string, seq uint64) (bool, error) {
	body, err := json.Marshal(map[string]any{"seq": seq, "no_erase": true})
	if err != nil {
		return false, err
	}
	what := "STREAM.MSG.DELETE." + stream
	err = c.Do(ctx, func(ctx context.Context, s *Session) error {
		ctx, cancel := context.WithTimeout(ctx, apiTimeout)
		defer cancel()
		return request(ctx, s.NATS, what, body, nil)
	})
	// the server refused another request, which ended the wait for the answer of this one
	if errors.Is(err, nats.ErrPermissionViolation) && quoted(err.Error()) != apiPrefix+what {
		err = fmt.Errorf("%w: %w", ErrIndeterminate, err)
	}
	return takeResult(err)
}

// takeResult returns the result of Take after err, the error of its request: true for nil, false
// for the answer that the message does not exist. A server that knows no leader answers
// "unavailable". Another one may still lead, and remove the message: in a cluster such an answer
// leaves the outcome open, and the error is [ErrIndeterminate]. Any other err is returned with
// false.
func takeResult(err error) (bool, error) {
	switch code := Code(err); {
	case err == nil:
		return true, nil
	case code == codeNoMessage, code == codeDeleteFailed && strings.Contains(err.Error(), "not found"):
		return false, nil
	case code == codeUnavailable:
		return false, fmt.Errorf("nats take: %w: %w", ErrIndeterminate, err)
	}
	return false, fmt.Errorf("nats take: %w", err)
}

// Purge removes the messages of a subject, which may have wildcards, and returns their number. See
// PurgeOldest for repeated requests and errors.
func (c *Conn) Purge(ctx context.Context, stream, subject string) (int, error) {
	return c.PurgeOldest(ctx, stream, subject, 0)
}

// PurgeOldest removes the messages of a subject like Purge, except the newest keep messages. It
// waits for the answer and repeats the request like API. The number is that of the last attempt: it
// lacks the messages that an attempt without an answer has removed. After [ErrIndeterminate]
// messages may have been removed, and the number is 0.
func (c *Conn) PurgeOldest(ctx context.Context, stream, subject string, keep int) (int, error) {
	var resp struct {
		Purged int `json:"purged"`
	}
	req := map[string]any{"filter": subject}
	if keep > 0 {
		req["keep"] = keep
	}
	err := c.change(ctx, "STREAM.PURGE."+stream, req, &resp)
	return resp.Purged, err
}

// Subjects returns the number of subjects of a stream that match a subject with wildcards and have
// messages. It waits like API.
func (c *Conn) Subjects(ctx context.Context, stream, subject string) (int, error) {
	const beyond = 1 << 40 // an offset after the end of the list, because only its length is needed
	var resp struct {
		Total int `json:"total"`
	}
	err := c.API(ctx, "STREAM.INFO."+stream, map[string]any{"subjects_filter": subject, "offset": beyond}, &resp)
	return resp.Total, err
}

// SubjectNames returns the subjects of the stream's messages that match a pattern, in no order. It
// waits for the server, with a request for each 100,000 of them. Returns [ErrNoStream] without the
// stream.
func (c *Conn) SubjectNames(ctx context.Context, stream, pattern string) ([]string, error) {
	var names []string
	for {
		var resp struct {
			Total int `json:"total"`
			State struct {
				Subjects map[string]uint64 `json:"subjects"`
			} `json:"state"`
		}
		err := c.API(ctx, "STREAM.INFO."+stream, map[string]any{"subjects_filter": pattern, "offset": len(names)}, &resp)
		if err != nil {
			return nil, err
		}
		for name := range resp.State.Subjects {
			names = append(names, name)
		}
		if len(names) >= resp.Total || len(resp.State.Subjects) == 0 {
			return names, nil
		}
	}
}
