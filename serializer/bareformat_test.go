package serializer

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/task"
)

func TestBareFormat(t *testing.T) {
	e := &task.Envelope{
		ID: "id-1", Name: "mail.send", ContentType: ContentJSON, Args: []byte(`{"to":"a"}`), ReplyTo: "node", Origin: "node",
		Headers: map[string]string{"trace": "x"}, Meta: task.Metadata{Priority: task.Set(7)},
	}
	m, err := BareFormat{}.Encode(e)
	want := &broker.Message{ID: "id-1", ContentType: ContentJSON, Body: e.Args, Priority: 7}
	if diff := cmp.Diff(want, m); err != nil || diff != "" {
		t.Fatalf("%v, -want +got:\n%s", err, diff)
	}
	got, err := BareFormat{}.Decode(m)
	bare := &task.Envelope{Version: task.EnvelopeVersion, ID: "id-1", ContentType: ContentJSON, Args: e.Args}
	if err != nil || !reflect.DeepEqual(got, bare) {
		t.Fatalf("read as %+v, %v, want %+v", got, err, bare)
	}
	next := *e
	next.Retries = 2
	if m, err = (BareFormat{}).Encode(&next); err != nil {
		t.Fatal(err)
	}
	if got, err = (BareFormat{}).Decode(m); err != nil || got.Retries != 2 || string(m.Body) != string(e.Args) {
		t.Errorf("a retry is %s, read as %+v, %v", m.Body, got, err)
	}
	for name, change := range map[string]func(*task.Envelope){
		"successor": func(e *task.Envelope) { e.Then = []task.Link{{Name: "next"}} }, "callback of a failure": func(e *task.Envelope) { e.Else = []task.Link{{Name: "next"}} },
		"chord": func(e *task.Envelope) { e.Chord = &task.Link{Name: "next"} }, "group": func(e *task.Envelope) { e.Group = "g" },
		"conditions": func(e *task.Envelope) { e.Headers = map[string]string{task.HeaderConditions: "id-1"} },
		"sealed":     func(e *task.Envelope) { e.ContentType += "+" + CodingSealed }, "bad id": func(e *task.Envelope) { e.ID = "a b" },
	} {
		other := *e
		change(&other)
		if _, err := (BareFormat{}).Encode(&other); !errors.Is(err, ErrValue) {
			t.Errorf("%s: %v, want ErrValue", name, err)
		}
	}
}
