package serializertest_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/serializertest"
	"github.com/swarmiji/swarmiji/task"
)

// lists is JSON that also reads a struct from a list, and so can be a Composer.
type lists struct{ serializer.JSON }

func (l lists) Unmarshal(data []byte, v any) error {
	var fields []json.RawMessage
	to := reflect.ValueOf(v)
	isStruct := to.Kind() == reflect.Pointer && !to.IsNil() && to.Elem().Kind() == reflect.Struct
	if !isStruct || l.JSON.Unmarshal(data, &fields) != nil {
		return l.JSON.Unmarshal(data, v)
	}
	for i := range min(len(fields), to.Elem().NumField()) {
		if err := l.JSON.Unmarshal(fields[i], to.Elem().Field(i).Addr().Interface()); err != nil {
			return err
		}
	}
	return nil
}

func (l lists) Prepend(args []byte, value any) ([]byte, error) {
	list := []json.RawMessage{}
	if len(args) > 0 {
		if err := l.JSON.Unmarshal(args, &list); err != nil {
			return nil, fmt.Errorf("%w: %w", serializer.ErrMalformed, err)
		}
	}
	first, err := l.Marshal(value)
	if err != nil {
		return nil, err
	}
	return l.Marshal(append([]json.RawMessage{first}, list...))
}

func (l lists) PrependFailure(args []byte, f task.Failure) ([]byte, error) {
	return l.Prepend(args, f.ID)
}

// TestComposer runs the cases of a Composer.
func TestComposer(t *testing.T) { serializertest.TestSerializer(t, lists{}) }
