package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// pairs is a Composer that writes each call as text.
type pairs struct{ serializer.JSON }

func (pairs) ContentType() string { return "application/pairs" }

func (pairs) Prepend(args []byte, value any) ([]byte, error) {
	return fmt.Appendf(nil, "%T %v before %s", value, value, args), nil
}

func (pairs) PrependFailure(args []byte, f task.Failure) ([]byte, error) {
	return nil, fmt.Errorf("%w: failure of %s before %s", serializer.ErrValue, f.ID, args)
}

// TestPrependByComposer shows that a Composer gets the result with all digits, and that its error
// fails the successor.
func TestPrependByComposer(t *testing.T) {
	c, err := New(serializer.Wire{Serializers: []serializer.Serializer{serializer.JSON{}, pairs{}}})
	if err != nil {
		t.Fatal(err)
	}
	parent := &task.Envelope{ID: "parent", ContentType: serializer.ContentJSON}
	link := &task.Link{Name: "next", ContentType: pairs{}.ContentType(), Args: []byte("own"), Feed: task.FeedPrepend}
	result := Given{Value: Value{serializer.ContentJSON, []byte("123456789012345678901234567890")}}
	s := c.Follow(parent, link, "next-1", "q", result, nil)
	if want := fmt.Sprintf("%T 123456789012345678901234567890 before own", json.Number("")); s.Err != nil || string(s.Envelope.Args) != want || s.Envelope.ContentType != "application/pairs" {
		t.Errorf("arguments %q of %s, %v", s.Envelope.Args, s.Envelope.ContentType, s.Err)
	}
	failure, err := c.Fail("", task.Failure{ID: "parent"})
	if err != nil {
		t.Fatal(err)
	}
	if s = c.Follow(parent, link, "next-2", "q", failure, nil); !errors.Is(s.Err, task.ErrBadArgs) || !errors.Is(s.Err, serializer.ErrValue) {
		t.Errorf("a failure: %v", s.Err)
	}
	link.ContentType = "application/unknown"
	if s = c.Follow(parent, link, "next-3", "q", result, nil); !errors.Is(s.Err, serializer.ErrUnknownType) {
		t.Errorf("an unknown content type: %v", s.Err)
	}
}
