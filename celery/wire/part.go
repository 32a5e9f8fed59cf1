package wire

import (
	"errors"
	"fmt"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// EncodePart returns the end of a chord's part as Celery's Redis backend keeps it in its sorted
// set: the list of 1, id, state and result. The encoding is JSON, or msgpack if contentType is
// [serializer.ContentMsgpack]. A result that cannot be converted to that encoding is null. Returns
// [resultstore.ErrMalformed] for an invalid id or state.
func EncodePart(r *resultstore.Record, contentType string) ([]byte, error) {
	c := codingOf(contentType)
	if c == nil {
		c = jsonCoding{}
	}
	err := checkRecord(r)
	var data []byte
	if err == nil {
		data, err = encodePart(c, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", resultstore.ErrMalformed, err)
	}
	return data, nil
}

// encodePart does the work of EncodePart.
func encodePart(c coding, r *resultstore.Record) ([]byte, error) {
	result := []byte(nullOf(c))
	var err error
	if r.State == task.StateSucceeded {
		if value, _ := plainResult(c, r); value != nil {
			result = value
		}
	} else {
		x := ToException(errorOf(r), r.Name)
		if result, err = x.write(c); err != nil {
			return nil, err
		}
	}
	parts := make([][]byte, 3)
	for i, v := range []any{1, string(r.ID), celeryState(r.State)} {
		if parts[i], err = c.encode(v); err != nil {
			return nil, err
		}
	}
	return c.join(append(parts, result)...), nil
}

// DecodePart reads the end of a chord's part, of Python or of [EncodePart], in JSON or msgpack.
// Returns [resultstore.ErrMalformed] for any other data.
func DecodePart(data []byte) (resultstore.Record, error) {
	var c coding = jsonCoding{}
	if len(data) > 0 && data[0] >= 0x80 { // a list of msgpack
		c = msgpackCoding{}
	}
	err := c.check(data)
	var r resultstore.Record
	if err == nil {
		r, err = decodePart(c, data)
	}
	if err == nil {
		err = checkRecord(&r)
	}
	if err != nil {
		return resultstore.Record{}, fmt.Errorf("%w: %w", resultstore.ErrMalformed, err)
	}
	return r, nil
}

// decodePart does the work of DecodePart.
func decodePart(c coding, data []byte) (r resultstore.Record, err error) {
	list, err := c.list(data)
	if err != nil || len(list) != 4 {
		return r, errors.New("a part of a chord is a list of four")
	}
	read := &signatureReader{c: c}
	id, err := read.text(list[1])
	if err != nil {
		return r, err
	}
	state, err := read.text(list[2])
	if err != nil {
		return r, err
	}
	r.ID, r.State = task.ID(id), recordState(state)
	if r.State == task.StateSucceeded {
		r.ContentType, r.Result = c.plain(), append([]byte(nil), list[3]...)
		return r, nil
	}
	v, err := c.value(list[3])
	if err != nil {
		return r, err
	}
	r.Error = FromException(readException(v), "")
	return r, nil
}
