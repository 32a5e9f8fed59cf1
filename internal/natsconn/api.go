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
	// apiTry is how long an answer is waited for before a question that may be repeated is: a leader that has just died never
	// answers.
	apiTry = 5 * time.Second
	// apiPause is the time between two such questions.
	apiPause = 50 * time.Millisecond
)

// Stored is a message as it lies in a stream.
type Stored struct {
	Subject string
	Seq     uint64
	Header  nats.Header
	Data    []byte
	Time    time.Time // when it was stored
}

// API sends a request of the JetStream API and reads its answer into resp, which may be nil. What, such as
// "STREAM.MSG.GET.S", follows $JS.API. The request is repeated until ctx ends when its answer was lost or the server
// cannot serve just now, so it must be one that may be.
func (c *Conn) API(ctx context.Context, what string, req, resp any) error {
	_, err := c.ask(ctx, what, req, resp)
	return err
}

// change is API for a request that changes something. It is [ErrIndeterminate] when an earlier try may have done so, also if
// there was no connection afterwards.
func (c *Conn) change(ctx context.Context, what string, req, resp any) error {
	sent, err := c.ask(ctx, what, req, resp)
	if sent && errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w: %s", ErrIndeterminate, err.Error()) // not of both classes
	}
	return err
}

// ask reports also whether a try was made that may have reached the server and had no answer.
func (c *Conn) ask(ctx context.Context, what string, req, resp any) (sent bool, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return false, fmt.Errorf("nats %s: %w", what, err)
	}
	return c.repeat(ctx, what, func(ctx context.Context, s *Session) error { return request(ctx, s.NATS, what, body, resp) })
}

// repeat is ask with a request of the caller's.
func (c *Conn) repeat(ctx context.Context, what string, try func(ctx context.Context, s *Session) error) (sent bool, err error) {
	for {
		err = c.Do(ctx, func(ctx context.Context, s *Session) error {
			ctx, cancel := context.WithTimeout(ctx, apiTry)
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

// StreamTime asks the server that leads a stream for its time, and returns it with the moments just
// before and after, which have readings of the monotonic clock. A server before 2.10 does not tell:
// told is zero.
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

// GetLast returns the newest message of a subject, which may have wildcards, as the stream's leader has it. [ErrNotFound] if
// there is none.
func (c *Conn) GetLast(ctx context.Context, stream, subject string) (*Stored, error) {
	return c.get(ctx, stream, map[string]any{"last_by_subj": subject})
}

// GetNext returns the oldest message of a subject, which may have wildcards, whose sequence is at least seq, as the stream's
// leader has it. [ErrNotFound] if there is none.
func (c *Conn) GetNext(ctx context.Context, stream, subject string, seq uint64) (*Stored, error) {
	return c.get(ctx, stream, map[string]any{"next_by_subj": subject, "seq": max(seq, 1)})
}

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

// DeleteSeq removes a message from a stream. [ErrNotFound] if it is not there (any more).
func (c *Conn) DeleteSeq(ctx context.Context, stream string, seq uint64) error {
	err := c.change(ctx, "STREAM.MSG.DELETE."+stream, map[string]any{"seq": seq, "no_erase": true}, nil)
	switch c := Code(err); {
	case c == codeNoMessage, c == codeDeleteFailed && strings.Contains(err.Error(), "not found"):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// Take removes the message with sequence seq, in one try, and reports whether there was one. Of all who take it, one is told
// true. After [ErrIndeterminate] it may have been removed. The caller knows that the stream is still the same. It is no Purge,
// after which the server forgets what consumers of the stream gave back.
func (c *Conn) Take(ctx context.Context, stream string, seq uint64) (bool, error) {
	body, err := json.Marshal(map[string]any{"seq": seq, "no_erase": true})
	if err != nil {
		return false, err
	}
	err = c.Do(ctx, func(ctx context.Context, s *Session) error {
		ctx, cancel := context.WithTimeout(ctx, apiTry)
		defer cancel()
		return request(ctx, s.NATS, "STREAM.MSG.DELETE."+stream, body, nil)
	})
	switch code := Code(err); {
	case err == nil:
		return true, nil
	case code == codeNoMessage, code == codeDeleteFailed && strings.Contains(err.Error(), "not found"):
		return false, nil
	}
	return false, fmt.Errorf("nats take: %w", err)
}

// Purge removes the messages of a subject, which may have wildcards, and returns how many they were.
func (c *Conn) Purge(ctx context.Context, stream, subject string) (int, error) {
	return c.PurgeOldest(ctx, stream, subject, 0)
}

// PurgeOldest is Purge of all but the newest messages, of which it keeps so many.
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

// Subjects returns how many subjects of a stream that match one with wildcards hold messages.
func (c *Conn) Subjects(ctx context.Context, stream, subject string) (int, error) {
	const beyond = 1 << 40 // of the list: only its length is asked for
	var resp struct {
		Total int `json:"total"`
	}
	err := c.API(ctx, "STREAM.INFO."+stream, map[string]any{"subjects_filter": subject, "offset": beyond}, &resp)
	return resp.Total, err
}
