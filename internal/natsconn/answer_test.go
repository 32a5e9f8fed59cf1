package natsconn

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestParseAck(t *testing.T) {
	for _, tt := range []struct {
		data string
		want Ack
		err  error
	}{
		{`{"stream":"S","seq":12}`, Ack{Sequence: 12}, nil},
		{`{"stream":"S", "seq":12}`, Ack{Sequence: 12}, nil},
		{`{"stream":"S","domain":"hub","seq":12}`, Ack{Stream: "S", Sequence: 12}, nil},
		{`{"stream":"S","seq":12,"duplicate": true}`, Ack{Stream: "S", Sequence: 12, Duplicate: true}, nil},
		{`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}`, Ack{}, ErrWrongSequence},
		{`{"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"},"stream":"S","seq":0}`, Ack{}, ErrOccupied},
		{`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"},"stream":"S","seq":0}`, Ack{}, ErrBlocked},
		{`{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"},"stream":"S","seq":0}`, Ack{}, ErrUnavailable},
		{`{"stream":"S","seq":99999999999999999999}`, Ack{}, errAnswer},
		{`{"stream":"S","seq":}`, Ack{}, errAnswer},
		{`{"seq":3}`, Ack{}, errAnswer},
		{`hello`, Ack{}, errAnswer},
		{``, Ack{}, errAnswer},
	} {
		got, err := ParseAck(&nats.Msg{Data: []byte(tt.data)})
		if got != tt.want || !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("ParseAck(%s) = %+v, %v; want %+v, %v", tt.data, got, err, tt.want, tt.err)
		}
	}
	if _, err := ParseAck(&nats.Msg{Header: nats.Header{"Status": {"503"}}}); !errors.Is(err, ErrNoStream) {
		t.Errorf("ParseAck of no responders: %v", err)
	}
}

// Servers that start, or were lost, are too few for the replicas of a stream for a while only.
func TestTooFewServers(t *testing.T) {
	refusal := func(text string) error {
		return Classify(&jetstream.APIError{Code: 400, ErrorCode: 10005, Description: text})
	}
	if err := refusal("no suitable peers for placement, peer offline"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a server is offline: %v", err)
	}
	for _, lasting := range []string{
		"tags not matched ['a']", "tags not matched ['offline-storage']", "peer offline, insufficient storage", "peer offline, tags not matched ['a']",
	} {
		if err := refusal("no suitable peers for placement, " + lasting); errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", lasting, err)
		}
	}
}

// A server without a leader refuses to remove a message. Another server may still remove it: a
// leader that was frozen. "Unavailable" would say that nothing was removed. A caller that finds
// no message then would take it for another consumer's, and the task would be lost.
func TestTakeResult(t *testing.T) {
	refusal := func(code jetstream.ErrorCode, text string) error {
		return Classify(&jetstream.APIError{Code: 503, ErrorCode: code, Description: text})
	}
	for name, c := range map[string]struct {
		err  error
		ok   bool
		want error
	}{
		"removed":        {nil, true, nil},
		"not there":      {refusal(10043, "no message found"), false, nil},
		"no leader":      {refusal(10008, "JetStream system temporarily unavailable"), false, ErrIndeterminate},
		"no connection":  {ErrUnavailable, false, ErrUnavailable},
		"without answer": {ErrIndeterminate, false, ErrIndeterminate},
	} {
		ok, err := takeResult(c.err)
		if ok != c.ok || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v; want %v, %v", name, ok, err, c.ok, c.want)
		}
	}
}
