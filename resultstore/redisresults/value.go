package redisresults

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// maxHead is larger than the first line of any value: two numbers, a state and "final" or "open".
const maxHead = 96

// encode returns the value of a record: the first line, which is described in the package comment,
// and the msgpack form. Returns the error of wire.EncodeRecord, which is ErrMalformed.
func encode(r *resultstore.Record) ([]byte, error) {
	body, err := wire.EncodeRecord(r)
	if err != nil {
		return nil, err
	}
	v := make([]byte, 0, maxHead+len(body))
	v = strconv.AppendInt(v, int64(r.Generation), 10)
	v = append(v, '.')
	v = strconv.AppendInt(v, int64(r.Deliveries), 10)
	v = append(v, ' ')
	v = append(v, r.State...)
	if r.State.Terminal() {
		v = append(v, " final\n"...)
	} else {
		v = append(v, " open\n"...)
	}
	return append(v, body...), nil
}

// decode returns the record in a value. Returns [resultstore.ErrMalformed] if the value is not a
// record of task id.
func decode(value []byte, id task.ID) (resultstore.Record, error) {
	r, err := decodeAny(value)
	if err == nil && r.ID != id {
		err = fmt.Errorf("%w: the value is the record of another task", resultstore.ErrMalformed)
	}
	if err != nil {
		return resultstore.Record{}, err
	}
	return r, nil
}

// decodeAny returns the record in a value, of any task. It ignores the first line, which repeats
// fields of the record. Returns [resultstore.ErrMalformed] if the value is not a record.
func decodeAny(value []byte) (resultstore.Record, error) {
	end := bytes.IndexByte(value[:min(len(value), maxHead)], '\n')
	if end < 0 {
		return resultstore.Record{}, fmt.Errorf("%w: the value has no first line", resultstore.ErrMalformed)
	}
	return wire.DecodeRecord(value[end+1:]) // the first line repeats fields of the record
}

// notice returns the message that is sent instead of a large record.
func notice(id task.ID) string { return "=" + string(id) }

// noticed returns the id in a notice. ok is false if the message is not a notice.
func noticed(message string) (id task.ID, ok bool) {
	s, ok := strings.CutPrefix(message, "=")
	return task.ID(s), ok
}
