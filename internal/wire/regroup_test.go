package wire

import (
	"testing"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// TestRewriteForNextGroup moves a member of a nested group whose message has begun a later life
// than its envelope. The message keeps the life, its other headers and the envelope's other fields.
func TestRewriteForNextGroup(t *testing.T) {
	c, err := New(serializer.Wire{})
	if err != nil {
		t.Fatal(err)
	}
	outer := &task.Link{ID: "outer-end", Name: "sum", Queue: "q"}
	inner := &task.Link{ID: "inner-end", Name: "sum", Queue: "q", Group: "outer", GroupIndex: 2, GroupSize: 3, Chord: outer}
	e := &task.Envelope{ID: "m", Root: "w", Name: "member", Group: "inner", GroupIndex: 1, GroupSize: 4, Chord: inner, Life: 1, ContentType: serializer.ContentJSON, Args: []byte("7")}
	m, err := c.Encode("q", e)
	if err != nil {
		t.Fatal(err)
	}
	m = NewLife(m, "first requeue") // life 2; the envelope still says 1
	m.Headers["own"] = "kept"
	got, f, err := c.Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	MoveToNextGroup(got)
	moved, err := c.Rewrite(m, f, "q", got, nil)
	if err != nil {
		t.Fatal(err)
	}
	if Life(moved) != 2 || moved.Generation != FirstGeneration(2) || moved.Headers["own"] != "kept" || moved.ID != m.ID {
		t.Errorf("the message lost its life or headers: %+v", moved)
	}
	back, _, err := c.Decode(moved)
	if err != nil {
		t.Fatal(err)
	}
	if back.Group != NextGroup("inner") || back.GroupIndex != 1 || back.GroupSize != 4 || back.Root != "w" || string(back.Args) != "7" {
		t.Errorf("the member is %+v", back)
	}
	chord := back.Chord
	if chord == nil || chord.ID != "inner-end" || chord.Group != NextGroup("outer") || chord.GroupIndex != 2 || chord.Chord == nil || chord.Chord.ID != "outer-end" {
		t.Errorf("the callback is %+v", chord)
	}
	if inner.Group != "outer" || e.Group != "inner" {
		t.Error("the sender's links have changed")
	}
}
