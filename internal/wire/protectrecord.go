package wire

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// errHidden stands in the place of a sealed failure's text.
var errHidden = errors.New("swarmiji: the reason is sealed")

// ProtectRecord compresses and seals a record that is to be stored, where that is configured. compression is what the task's
// effective metadata say. The record still shows everything but the result and the text of an error; what is believed later is
// what lies inside the seal, which also holds the state.
func (c *Codec) ProtectRecord(r *resultstore.Record, compression task.Opt[string]) error {
	return c.protectRecord(r, compression, place{})
}

// ProtectMember is ProtectRecord for the member of a group. The seal is bound to its place there as well, so that members
// cannot be exchanged.
func (c *Codec) ProtectMember(r *resultstore.Record, compression task.Opt[string], group task.ID, index int) error {
	return c.protectRecord(r, compression, place{group, index})
}

// place is where a record stands that is kept under more than its own id.
type place struct {
	group task.ID // "" for none
	index int
}

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

func bindRecord(r *resultstore.Record, at place) []byte {
	if at.group == "" {
		return serializer.Binding(purposeResult, string(r.ID), string(r.State), r.ContentType)
	}
	return serializer.Binding(purposeMember, string(r.ID), string(r.State), r.ContentType, string(at.group), strconv.Itoa(at.index))
}

// OpenRecord makes of a terminal record as it was stored the one that its consumer wrote. An error means that it must not be
// believed, or cannot be read here. Opening one that was opened is an error where sealing is required.
func (c *Codec) OpenRecord(r *resultstore.Record) error { return c.openRecord(r, place{}) }

// OpenMember is OpenRecord for what ProtectMember has made.
func (c *Codec) OpenMember(r *resultstore.Record, group task.ID, index int) error {
	return c.openRecord(r, place{group, index})
}

func (c *Codec) openRecord(r *resultstore.Record, at place) error {
	p := c.protect
	base, coding := c.codingOf(r.ContentType)
	sealed := coding == serializer.CodingSealed
	switch {
	case sealed && p.sealer == nil:
		return fmt.Errorf("%w: the result is sealed, and no Sealer is configured", serializer.ErrUnknownType)
	case sealed:
		plain, err := p.sealer.Open(r.Result, bindRecord(r, at))
		if err != nil {
			return err
		}
		inner, err := DecodeRecord(plain)
		if err != nil {
			return fmt.Errorf("inside its seal: %w", err)
		}
		r.ContentType, r.Result, r.Error, r.Correlation = inner.ContentType, inner.Result, inner.Error, inner.Correlation
		base, coding = c.codingOf(r.ContentType)
	case p.sealer != nil && !p.acceptPlain:
		return fmt.Errorf("%w: this producer or consumer takes sealed results only", serializer.ErrNotSealed)
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
