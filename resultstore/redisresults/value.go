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

// maxHead is more than the first line of a value has bytes: two numbers, a state and the word for its end.
const maxHead = 96

// encode writes the value of a record.
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

// decode reads the value of the record of a task. The error is [resultstore.ErrMalformed].
func decode(value []byte, id task.ID) (resultstore.Record, error) {
	r, err := decodeAny(value)
	if err == nil && r.ID != id {
		err = fmt.Errorf("%w: the record of another task", resultstore.ErrMalformed)
	}
	if err != nil {
		return resultstore.Record{}, err
	}
	return r, nil
}

func decodeAny(value []byte) (resultstore.Record, error) {
	end := bytes.IndexByte(value[:min(len(value), maxHead)], '\n')
	if end < 0 {
		return resultstore.Record{}, fmt.Errorf("%w: no first line", resultstore.ErrMalformed)
	}
	return wire.DecodeRecord(value[end+1:]) // the line says nothing that is not in the record
}

// notice is what a submitter is told instead of a record that is large.
func notice(id task.ID) string { return "=" + string(id) }

// noticed returns the id in a notice; ok is false for what is none.
func noticed(message string) (id task.ID, ok bool) {
	s, ok := strings.CutPrefix(message, "=")
	return task.ID(s), ok
}
