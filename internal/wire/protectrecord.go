package wire

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// errHidden replaces the text of a sealed failure.
var errHidden = errors.New("swarmiji: the reason is sealed")

// ProtectRecord compresses and seals r before it is stored, as configured. compression comes from
// the task's effective metadata. The record still shows everything except its result and the text
// of its error. Readers use only the values inside the seal, which also holds the state.
func (c *Codec) ProtectRecord(r *resultstore.Record, compression task.Opt[string]) error {
	return c.protectRecord(r, compression, place{})
}

// ProtectMember protects the record of a group's member like ProtectRecord. It also binds the seal
// to the group and the index, so that members cannot be exchanged.
func (c *Codec) ProtectMember(r *resultstore.Record, compression task.Opt[string], group task.ID, index int) error {
	return c.protectRecord(r, compression, place{group: group, index: index})
}

// ProtectCheckpoint compresses and seals the value of c, a checkpoint of task id, as configured.
// The seal is bound to the task and the name, so that checkpoints cannot be exchanged.
func (c *Codec) ProtectCheckpoint(id task.ID, p *resultstore.Checkpoint, compression task.Opt[string]) error {
	r := checkpointRecord(id, p)
	if err := c.protectRecord(&r, compression, place{checkpoint: p.Name}); err != nil {
		return err
	}
	p.ContentType, p.Value = r.ContentType, r.Result
	return nil
}

// OpenCheckpoint changes the value of p, a stored checkpoint of task id, back to that before
// ProtectCheckpoint. Its errors are those of OpenRecord.
func (c *Codec) OpenCheckpoint(id task.ID, p *resultstore.Checkpoint) error {
	r := checkpointRecord(id, p)
	if err := c.openRecord(&r, place{checkpoint: p.Name}); err != nil {
		return err
	}
	p.ContentType, p.Value = r.ContentType, r.Result
	return nil
}

// checkpointRecord returns the record by which a checkpoint is protected: that of a success with
// the same value.
func checkpointRecord(id task.ID, p *resultstore.Checkpoint) resultstore.Record {
	return resultstore.Record{ID: id, State: task.StateSucceeded, ContentType: p.ContentType, Result: p.Value}
}

// place is the position of a record in a group, or the name of a checkpoint.
type place struct {
	group      task.ID // "": not in a group
	index      int
	checkpoint string // "": not a checkpoint
}

// protectRecord compresses and seals r, with the seal bound to at. It seals only terminal records
// and records with an error.
func (c *Codec) protectRecord(r *resultstore.Record, compression task.Opt[string], at place) error {
	p := c.protect
	var err error
	if r.ContentType, r.Result, err = p.deflate(p.compressor(compression.Or(p.Use)), r.ContentType, r.Result); err != nil {
		return err
	}
	if p.sealer == nil || !r.State.Terminal() && r.Error == nil {
		return nil
	}
	plain, err := EncodeRecord(&resultstore.Record{
		ID: r.ID, State: r.State, ContentType: r.ContentType, Result: r.Result, Error: r.Error, Correlation: r.Correlation,
	})
	if err != nil {
		return err
	}
	r.ContentType += "+" + serializer.CodingSealed
	if r.Result, err = p.sealer.Seal(plain, bindRecord(r, at)); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	if r.Error != nil {
		r.Error = &task.RemoteError{Type: r.Error.Type, Message: errHidden.Error()}
	}
	return nil
}

// bindRecord returns the values to which the seal of a record is bound.
func bindRecord(r *resultstore.Record, at place) []byte {
	if at.checkpoint != "" {
		return serializer.Binding(purposeCheckpoint, string(r.ID), r.ContentType, at.checkpoint)
	}
	if at.group == "" {
		return serializer.Binding(purposeResult, string(r.ID), string(r.State), r.ContentType)
	}
	return serializer.Binding(purposeMember, string(r.ID), string(r.State), r.ContentType, string(at.group), strconv.Itoa(at.index))
}

// OpenRecord changes a stored record back to that of its consumer: it opens the seal and
// decompresses the result. After an error the record cannot be trusted or read. If sealing is
// required, opening a record twice is an error.
func (c *Codec) OpenRecord(r *resultstore.Record) error { return c.openRecord(r, place{}) }

// OpenMember opens r, a record of ProtectMember, as OpenRecord does. The seal must be bound to this
// group and index.
func (c *Codec) OpenMember(r *resultstore.Record, group task.ID, index int) error {
	return c.openRecord(r, place{group: group, index: index})
}

// openRecord opens the seal of r, which must be bound to at, and decompresses the result. Returns
// ErrNotSealed if sealing is required and r is not sealed.
func (c *Codec) openRecord(r *resultstore.Record, at place) error {
	p := c.protect
	base, coding := c.codingOf(r.ContentType)
	sealed := coding == serializer.CodingSealed
	switch {
	case sealed && p.sealer == nil:
		return fmt.Errorf("%w: the result is sealed, but no Sealer is configured", serializer.ErrUnknownType)
	case sealed:
		plain, err := p.sealer.Open(r.Result, bindRecord(r, at))
		if err != nil {
			return err
		}
		inner, err := DecodeRecord(plain)
		if err != nil {
			return fmt.Errorf("in the sealed content: %w", err)
		}
		r.ContentType, r.Result, r.Error, r.Correlation = inner.ContentType, inner.Result, inner.Error, inner.Correlation
		base, coding = c.codingOf(r.ContentType)
	case p.sealer != nil && !p.acceptPlain:
		return fmt.Errorf("%w: this producer or consumer accepts only sealed results", serializer.ErrNotSealed)
	}
	if coding == "" {
		return nil
	}
	result, err := c.expand(base, coding, r.Result)
	if err != nil {
		return err
	}
	r.ContentType, r.Result = base, result
	return nil
}
