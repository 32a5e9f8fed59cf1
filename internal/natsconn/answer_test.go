package natsconn

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
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
