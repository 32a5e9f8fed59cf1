package wire

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/compress"
	"github.com/swarmiji/swarmiji/serializer/msgpack"
	"github.com/swarmiji/swarmiji/task"
)

// Arguments and results may be compressed and sealed. Their content type then ends with what was done, in this order:
// "application/msgpack+zstd+sealed". It is what every Format and every store carries anyway, and an older reader refuses it as
// a type that it does not know.
//
// What is sealed of a task is the whole envelope: the message still shows id, name, metadata, counts and headers, so that it
// can be routed, delayed and looked at without a key, but the consumer goes by what lies inside the seal. Only the arguments
// and the successors are missing outside. Whoever could add a successor to a sealed task would otherwise have it sealed by the
// consumer that sends it. The seal is bound to id, name and queue, and every copy (retry, snooze, parked) is sealed anew.

// The purposes that seals are bound to.
const (
	purposeTask   = "task"
	purposeResult = "result"
	purposeMember = "member" // of a group, as a gatherer keeps its result
)

// contentEncoding is the property in which a message says that its whole body is compressed.
const contentEncoding = "content-encoding"

// ErrArgs says that a task can be read, but not its arguments. They are compressed in a way that nobody here knows, or that is broken, or
// become too large. What stands beside them can be believed as far as sealing goes.
var ErrArgs = errors.New("swarmiji: arguments cannot be decompressed")

// protection is what a Codec does with arguments and results besides writing them.
type protection struct {
	sealer      serializer.Sealer // nil: nothing is sealed
	acceptPlain bool
	serializer.Compression
	known func() []serializer.Compressor // read besides, made at the first need
}

func newProtection(c *serializer.Wire) (*protection, error) {
	if err := c.Compression.Check(); err != nil {
		return nil, fmt.Errorf("compression: %w", err)
	}
	p := &protection{sealer: c.Sealer, acceptPlain: c.AcceptPlain, Compression: c.Compression, known: sync.OnceValue(known)}
	for _, limit := range []struct {
		v   *int
		def int
	}{{&p.Above, serializer.DefaultCompressAbove}, {&p.MaxPlain, serializer.DefaultMaxPlain}, {&p.MaxRatio, serializer.DefaultMaxRatio}} {
		if *limit.v == 0 {
			*limit.v = limit.def
		}
	}
	return p, nil
}

// idle reports whether e travels as it is.
func (p *protection) idle(e *task.Envelope) bool {
	return p.sealer == nil && p.Use == "" && compressionOf(e).Or("") == ""
}

// compressor returns the configured one of a name, nil for none. Only these write what others have to read.
func (p *protection) compressor(name string) serializer.Compressor {
	for _, c := range p.Compressors {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// reader returns the compressor that reads a coding: a configured one, or one of this module's. nil: nobody can.
func (p *protection) reader(name string) serializer.Compressor {
	if c := p.compressor(name); c != nil || name == "" {
		return c
	}
	for _, c := range p.known() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// known returns the compressors of this module.
func known() []serializer.Compressor {
	all := []serializer.Compressor{compress.S2{}, &compress.Gzip{}}
	if zstd, err := compress.NewZstd(); err == nil {
		all = append(all, zstd)
	}
	return all
}

// codingOf splits a content type into the type and its last coding, "" for none. Other endings, such as the one of
// application/ld+json, belong to the type.
func (c *Codec) codingOf(contentType string) (base, coding string) {
	at := strings.LastIndexByte(contentType, '+')
	if at < 0 {
		return contentType, ""
	}
	switch name := contentType[at+1:]; name {
	case serializer.CodingSealed, compress.NameZstd, compress.NameS2, compress.NameGzip: // those of this module also where they are not configured
		return contentType[:at], name
	default:
		if c.protect.compressor(name) != nil {
			return contentType[:at], name
		}
	}
	return contentType, ""
}

// inflateBody decompresses a message whose content encoding names a compressor that is known. Limits hold for what comes out.
func (c *Codec) inflateBody(m *broker.Message) (*broker.Message, error) {
	by := c.protect.reader(m.Properties[contentEncoding])
	if by == nil {
		return m, nil // the formats refuse it
	}
	body, err := c.protect.inflate(by, m.Body, broker.BodyLimit(c.maxBody, m.Generation))
	if err != nil {
		return nil, fmt.Errorf("content encoding %s: %w", by.Name(), err)
	}
	plain := *m
	plain.Body, plain.Properties = body, make(map[string]string, len(m.Properties))
	for k, v := range m.Properties {
		if k != contentEncoding {
			plain.Properties[k] = v
		}
	}
	return &plain, nil
}

// inflate decompresses data to at most max bytes and MaxRatio times their own size.
func (p *protection) inflate(by serializer.Compressor, data []byte, max int) ([]byte, error) {
	if len(data) < max/p.MaxRatio {
		max = len(data) * p.MaxRatio
	}
	plain, err := by.Decompress(data, max)
	if err == nil && len(plain) > max {
		err = serializer.ErrTooLarge
	}
	return plain, err
}

// CheckCompression refuses what a task's metadata say of compression when no such compressor is configured. What comes from
// another process is not refused but stays plain.
func (c *Codec) CheckCompression(name string) error {
	if name == "" || c.protect.compressor(name) != nil {
		return nil
	}
	return fmt.Errorf("%w: compression %q is not configured", task.ErrBadMetadata, utf.Cut(name, 32))
}

// deflate compresses data where that is asked for and makes them smaller, and says so in their content type.
func (p *protection) deflate(by serializer.Compressor, contentType string, data []byte) (string, []byte, error) {
	if by == nil || len(data) < p.Above || len(data) > p.MaxPlain || p.sealer != nil && !p.Sealed {
		return contentType, data, nil
	}
	small, err := by.Compress(data)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %s: %w", serializer.ErrValue, by.Name(), err)
	}
	if len(small)+1+len(by.Name()) >= len(data) || len(small) < len(data)/p.MaxRatio+1 {
		return contentType, data, nil
	}
	return contentType + "+" + by.Name(), small, nil
}

// compressionOf returns what a task's metadata say of compression.
func compressionOf(e *task.Envelope) task.Opt[string] {
	if e.Meta.Compression.IsSet() || e.Base == nil {
		return e.Meta.Compression
	}
	return e.Base.Compression
}

// wrap returns the envelope that travels in e's place. e stays as it is.
func (p *protection) wrap(queue string, e *task.Envelope) (*task.Envelope, error) {
	// A copy of a task that came compressed is compressed likewise, so that it fits into a message: by any compressor that can read it.
	contentType, args, err := p.deflate(p.reader(compressionOf(e).Or(p.Use)), e.ContentType, e.Args)
	if err != nil {
		return nil, err
	}
	out := *e
	out.ContentType, out.Args = contentType, args
	if p.sealer == nil {
		return &out, nil
	}
	inner := out
	inner.ID, inner.Name = "", "" // the binding has them
	m, err := msgpack.Compact{}.Encode(&inner)
	if err != nil {
		return nil, err
	}
	out.ContentType += "+" + serializer.CodingSealed
	out.Then, out.Else, out.Chord, out.Unknown = nil, nil, nil, nil
	if out.Args, err = p.sealer.Seal(m.Body, bindTask(queue, &out)); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return &out, nil
}

func bindTask(queue string, e *task.Envelope) []byte {
	return serializer.Binding(purposeTask, string(e.ID), e.Name, queue, e.ContentType)
}

// Open makes of an envelope as it was decoded the one that its sender had: opened if it is sealed, and decompressed. queue is
// the name under which tasks know the queue it came from. An error means that this process must not run it: it belongs
// to the dead letters. After [ErrArgs] the rest of e is as its sender had it.
func (c *Codec) Open(queue string, e *task.Envelope) error {
	base, coding := c.codingOf(e.ContentType)
	p := c.protect
	if coding == "" {
		if p.sealer != nil && !p.acceptPlain {
			return fmt.Errorf("%w: this consumer takes sealed tasks only", serializer.ErrNotSealed)
		}
		return nil
	}
	if coding == serializer.CodingSealed {
		if err := c.unseal(queue, e); err != nil {
			return err
		}
		if base, coding = c.codingOf(e.ContentType); coding == "" {
			return nil
		}
	} else if p.sealer != nil && !p.acceptPlain {
		return fmt.Errorf("%w: this consumer takes sealed tasks only", serializer.ErrNotSealed)
	}
	args, err := c.expand(base, coding, e.Args)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrArgs, err)
	}
	e.ContentType, e.Args = base, args
	if compressionOf(e).Or(p.Use) != coding { // copies have to fit into a message as this one did
		e.Meta.Compression = task.Set(coding)
	}
	return nil
}

func (c *Codec) unseal(queue string, e *task.Envelope) error {
	if c.protect.sealer == nil {
		return fmt.Errorf("%w: it is sealed, and no Sealer is configured", serializer.ErrUnknownType)
	}
	plain, err := c.protect.sealer.Open(e.Args, bindTask(queue, e))
	if err != nil {
		return err
	}
	inner, err := msgpack.Compact{}.Decode(&broker.Message{ID: string(e.ID), ContentType: serializer.ContentCompact, Body: plain})
	if err != nil {
		return fmt.Errorf("inside its seal: %w", err)
	}
	inner.ID, inner.Name = e.ID, e.Name
	if inner.Root == inner.ID {
		inner.Root = ""
	}
	*e = *inner
	return nil
}

// expand decompresses data whose content type is base, without its coding.
func (c *Codec) expand(base, coding string, data []byte) ([]byte, error) {
	if _, nested := c.codingOf(base); nested != "" {
		return nil, fmt.Errorf("%w: %s inside of %s", serializer.ErrMalformed, utf.Cut(nested, 16), utf.Cut(coding, 16))
	}
	by := c.protect.reader(coding)
	if by == nil {
		return nil, fmt.Errorf("%w: %s, and no compressor of this name is configured", serializer.ErrUnknownType, utf.Cut(coding, 16))
	}
	plain, err := c.protect.inflate(by, data, c.protect.MaxPlain)
	if err != nil {
		return nil, fmt.Errorf("compressed with %s: %w", coding, err)
	}
	return plain, nil
}
