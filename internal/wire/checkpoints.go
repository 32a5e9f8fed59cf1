package wire

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/swarmiji/swarmiji/internal/rawmsgpack"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
)

// Checkpoints are the checkpoints of one task with the fencing token of the newest attempt that has
// used them. The zero value is a task without checkpoints.
type Checkpoints struct {
	Generation int
	Deliveries int
	Values     []resultstore.Checkpoint // in the order of their names
}

// Enter takes over the fencing token of a. Returns [resultstore.ErrStale] if a newer attempt has
// used the checkpoints.
func (s *Checkpoints) Enter(a *resultstore.Attempt) error {
	if a.Older(s.Generation, s.Deliveries) {
		return resultstore.ErrStale
	}
	s.Generation, s.Deliveries = a.Generation, a.Deliveries
	return nil
}

// Put adds a copy of c, or replaces the checkpoint of the same name. Returns
// [resultstore.ErrTooLarge] and changes nothing if the task would have too many.
func (s *Checkpoints) Put(c resultstore.Checkpoint) error {
	i, there := s.find(c.Name)
	names, size := len(s.Values)+1, c.Size()
	if there {
		names--
		size -= s.Values[i].Size()
	}
	for j := range s.Values {
		size += s.Values[j].Size()
	}
	if err := resultstore.CheckCheckpoints(c.Name, names, size); err != nil {
		return err
	}
	c.Value = bytes.Clone(c.Value)
	if there {
		s.Values[i] = c
	} else {
		s.Values = slices.Insert(s.Values, i, c)
	}
	return nil
}

// find returns the index of a name, or that at which it belongs.
func (s *Checkpoints) find(name string) (i int, there bool) {
	return slices.BinarySearchFunc(s.Values, name, func(c resultstore.Checkpoint, name string) int { return cmp.Compare(c.Name, name) })
}

// checkpointsVersion is the version of the stored form.
const checkpointsVersion = 1

// Encode returns the stored form of s: an array of the version, the token, and a checkpoint in
// each further element.
func (s *Checkpoints) Encode() []byte {
	b := rawmsgpack.AppendArrayLen(nil, 3+len(s.Values))
	b = rawmsgpack.AppendInt(b, checkpointsVersion)
	b = rawmsgpack.AppendInt(b, int64(s.Generation))
	b = rawmsgpack.AppendInt(b, int64(s.Deliveries))
	for i := range s.Values {
		b = appendCheckpoint(b, &s.Values[i])
	}
	return b
}

// DecodeCheckpoints returns the checkpoints that Encode has written. Returns
// [resultstore.ErrMalformed] for other data.
func DecodeCheckpoints(data []byte) (*Checkpoints, error) {
	s := &Checkpoints{}
	err := readChecked(data, func(r *rawmsgpack.Reader) {
		n := r.ArrayLen() - 3
		if v := r.Int(); r.Err() == nil && (v != checkpointsVersion || n < 0 || n > resultstore.MaxCheckpoints) {
			r.Fail(fmt.Errorf("version %d with %d checkpoints", v, n))
		}
		s.Generation, s.Deliveries = serializer.Count(r.Int()), serializer.Count(r.Int())
		for ; n > 0 && r.Err() == nil; n-- {
			s.Values = append(s.Values, readCheckpoint(r))
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.Values, func(a, b resultstore.Checkpoint) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

// EncodeCheckpoint returns the stored form of one checkpoint.
func EncodeCheckpoint(c *resultstore.Checkpoint) []byte {
	return appendCheckpoint(make([]byte, 0, 16+c.Size()), c)
}

// DecodeCheckpoint returns the checkpoint that EncodeCheckpoint has written. Returns
// [resultstore.ErrMalformed] for other data.
func DecodeCheckpoint(data []byte) (c resultstore.Checkpoint, err error) {
	err = readChecked(data, func(r *rawmsgpack.Reader) { c = readCheckpoint(r) })
	return c, err
}

// appendCheckpoint appends the stored form of c: an array of its name, content type and value.
func appendCheckpoint(b []byte, c *resultstore.Checkpoint) []byte {
	b = rawmsgpack.AppendArrayLen(b, 3)
	b = rawmsgpack.AppendText(b, c.Name)
	b = rawmsgpack.AppendText(b, c.ContentType)
	return rawmsgpack.AppendBytes(b, c.Value)
}

// readCheckpoint reads what appendCheckpoint has written. An error is recorded in r.
func readCheckpoint(r *rawmsgpack.Reader) (c resultstore.Checkpoint) {
	if n := r.ArrayLen(); r.Err() == nil && n != 3 {
		r.Fail(fmt.Errorf("a checkpoint of %d elements", n))
	}
	c.Name, c.ContentType = string(r.Text()), string(r.Text())
	c.Value = append([]byte{}, r.Bytes()...)
	if err := c.Check(); err != nil && r.Err() == nil {
		r.Fail(err)
	}
	return c
}

// readChecked calls read with a reader of data, which must read all of it. Returns
// [resultstore.ErrMalformed] if that fails.
func readChecked(data []byte, read func(r *rawmsgpack.Reader)) error {
	_, err := rawmsgpack.Check(data)
	if err == nil {
		r := rawmsgpack.NewReader(data)
		read(&r)
		r.Done()
		err = r.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: stored checkpoints: %w", resultstore.ErrMalformed, err)
	}
	return nil
}
