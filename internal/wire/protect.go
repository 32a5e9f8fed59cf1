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

// Arguments and results may be compressed and sealed. Their content type then names the codings in
// this order: "application/msgpack+zstd+sealed". Every Format and every store carries the content
// type. An older reader refuses it as an unknown type.
//
// The seal of a task holds the whole envelope. The message still shows id, name, metadata, counts
// and headers, so that it can be routed, delayed and inspected without a key. The consumer uses
// only the values inside the seal. Outside only the arguments and the successors are missing: if a
// writer could add a successor to a sealed task, the consumer would seal it. The seal is bound to
// id, name and queue, and every copy (retry, snooze, parked) is sealed again.

// Purposes to which seals are bound.
const (
	purposeTask   = "task"
	purposeResult = "result"
	purposeMember = "member" // result of a group's member, as a Gatherer stores it
	// value of a checkpoint, which a consumer reads in a later attempt of the same task
	purposeCheckpoint = "checkpoint"
)

// contentEncoding is the property in which a message names the compression of its whole body.
const contentEncoding = "content-encoding"

// ErrArgs reports that a task can be read, but not its arguments: their compression is unknown or
// damaged, or they are too large when decompressed. The other fields are as trustworthy as the seal
// makes them.
var ErrArgs = errors.New("swarmiji: arguments cannot be decompressed")

// protection compresses and seals arguments and results for a Codec.
type protection struct {
	sealer      serializer.Sealer // nil: no sealing
	acceptPlain bool
	serializer.Compression
	known func() map[string]compress.Reader // codings that are read without configuration
}

// newProtection returns the protection that c configures, with its defaults. It returns an error
// for invalid settings of compression.
func newProtection(c *serializer.Wire) (*protection, error) {
	if err := c.Compression.Check(); err != nil {
		return nil, fmt.Errorf("compression: %w", err)
	}
	p := &protection{sealer: c.Sealer, acceptPlain: c.AcceptPlain, Compression: c.Compression, known: sync.OnceValue(compress.Readers)}
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

// unused reports whether e is sent without compression and sealing.
func (p *protection) unused(e *task.Envelope) bool {
	return p.sealer == nil && p.Use == "" && compressionOf(e).Or("") == ""
}

// compressor returns the configured compressor with a name, or nil. Only configured compressors are
// used for writing.
func (p *protection) compressor(name string) serializer.Compressor {
	for _, c := range p.Compressors {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// reader returns the function that reads a coding: that of a configured compressor, or one of this
// module. It returns nil for an unknown coding.
func (p *protection) reader(name string) compress.Reader {
	if c := p.compressor(name); c != nil {
		return c.Decompress
	}
	if name == "" {
		return nil
	}
	return p.known()[name]
}

// codingOf splits a content type into the type and its last coding. The coding is "" if the type
// stands alone. Other suffixes, such as that of application/ld+json, belong to the type.
func (c *Codec) codingOf(contentType string) (base, coding string) {
	at := strings.LastIndexByte(contentType, '+')
	if at < 0 {
		return contentType, ""
	}
	switch name := contentType[at+1:]; name {
	// the codings of this module count even if they are not configured
	case serializer.CodingSealed, compress.NameZstd, compress.NameS2, compress.NameGzip:
		return contentType[:at], name
	default:
		if c.protect.compressor(name) != nil {
			return contentType[:at], name
		}
	}
	return contentType, ""
}

// inflateBody returns a copy of m with its body decompressed, if m names a known compressor in its
// content encoding. Otherwise it returns m. The decompressed body must not exceed the message
// limit.
func (c *Codec) inflateBody(m *broker.Message) (*broker.Message, error) {
	coding := m.Properties[contentEncoding]
	read := c.protect.reader(coding)
	if read == nil {
		return m, nil // the formats refuse it
	}
	body, err := c.protect.inflate(read, m.Body, broker.BodyLimit(c.maxBody, m.Generation))
	if err != nil {
		return nil, fmt.Errorf("content encoding %s: %w", coding, err)
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

// inflate decompresses data to at most max bytes and at most MaxRatio times the size of data.
// Returns ErrTooLarge beyond that.
func (p *protection) inflate(read compress.Reader, data []byte, max int) ([]byte, error) {
	if len(data) < max/p.MaxRatio {
		max = len(data) * p.MaxRatio
	}
	plain, err := read(data, max)
	if err == nil && len(plain) > max {
		err = serializer.ErrTooLarge
	}
	return plain, err
}

// CheckCompression returns [task.ErrBadMetadata] if a task's metadata name a compression without a
// configured compressor. Call it for tasks of this process. A task from another process is not
// refused; its copies are sent uncompressed.
func (c *Codec) CheckCompression(name string) error {
	if name == "" || c.protect.compressor(name) != nil {
		return nil
	}
	return fmt.Errorf("%w: compression %q is not configured", task.ErrBadMetadata, utf.Cut(name, 32))
}

// deflate compresses data with by, if the configuration allows it and the result is smaller, and
// adds the coding to the content type. Otherwise it returns both unchanged. A nil by compresses
// nothing.
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

// compressionOf returns the compression in a task's metadata, or else in its base metadata.
func compressionOf(e *task.Envelope) task.Opt[string] {
	if e.Meta.Compression.IsSet() || e.Base == nil {
		return e.Meta.Compression
	}
	return e.Base.Compression
}

// wrap returns a compressed and sealed copy of e for queue. e is not changed. If the arguments of e
// arrived compressed, the copy holds arrived in their place.
func (p *protection) wrap(queue string, e *task.Envelope, arrived *Value) (*task.Envelope, error) {
	if arrived == nil {
		arrived = new(Value)
		var err error
		arrived.ContentType, arrived.Data, err = p.deflate(p.compressor(compressionOf(e).Or(p.Use)), e.ContentType, e.Args)
		if err != nil {
			return nil, err
		}
	}
	out := *e
	out.ContentType, out.Args = arrived.ContentType, arrived.Data
	if p.sealer == nil {
		return &out, nil
	}
	inner := out
	inner.ID, inner.Name = "", "" // the binding of the seal holds them
	m, err := msgpack.Compact{}.Encode(&inner)
	if err != nil {
		return nil, err
	}
	out.ContentType += "+" + serializer.CodingSealed
	out.Then, out.Else, out.Chord, out.Burst, out.Unknown = nil, nil, nil, "", nil
	if out.Args, err = p.sealer.Seal(m.Body, bindTask(queue, &out)); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return &out, nil
}

// bindTask returns the values to which the seal of a task is bound.
func bindTask(queue string, e *task.Envelope) []byte {
	return serializer.Binding(purposeTask, string(e.ID), e.Name, queue, e.ContentType)
}

// Open changes a decoded envelope back to that of its sender: it opens the seal and decompresses
// the arguments. queue is the name by which tasks know the queue it came from. After an error this
// process must not run the task, and it belongs in the dead-letter queue. After [ErrArgs] all
// fields but the arguments are as the sender had them.
func (c *Codec) Open(queue string, e *task.Envelope) error {
	_, err := c.OpenArrived(queue, e)
	return err
}

// OpenArrived opens e like [Codec.Open], and returns the arguments in the compressed form in which
// they arrived, for [Codec.EncodeAs]. The result is nil if they were not compressed.
func (c *Codec) OpenArrived(queue string, e *task.Envelope) (arrived *Value, err error) {
	base, coding := c.codingOf(e.ContentType)
	p := c.protect
	if coding == "" {
		if p.sealer != nil && !p.acceptPlain {
			return nil, fmt.Errorf("%w: this consumer accepts only sealed tasks", serializer.ErrNotSealed)
		}
		return nil, nil
	}
	if coding == serializer.CodingSealed {
		if err := c.unseal(queue, e); err != nil {
			return nil, err
		}
		if base, coding = c.codingOf(e.ContentType); coding == "" {
			return nil, nil
		}
	} else if p.sealer != nil && !p.acceptPlain {
		return nil, fmt.Errorf("%w: this consumer accepts only sealed tasks", serializer.ErrNotSealed)
	}
	args, err := c.expand(base, coding, e.Args)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArgs, err)
	}
	arrived = &Value{e.ContentType, e.Args}
	e.ContentType, e.Args = base, args
	if compressionOf(e).Or(p.Use) != coding { // the result is compressed like the arguments
		e.Meta.Compression = task.Set(coding)
	}
	return arrived, nil
}

// unseal opens the seal of e and replaces e by the envelope inside, with the id and name of e.
// Returns ErrUnknownType if no Sealer is configured.
func (c *Codec) unseal(queue string, e *task.Envelope) error {
	if c.protect.sealer == nil {
		return fmt.Errorf("%w: the task is sealed, but no Sealer is configured", serializer.ErrUnknownType)
	}
	plain, err := c.protect.sealer.Open(e.Args, bindTask(queue, e))
	if err != nil {
		return err
	}
	inner, err := msgpack.Compact{}.Decode(&broker.Message{ID: string(e.ID), ContentType: serializer.ContentCompact, Body: plain})
	if err != nil {
		return fmt.Errorf("in the sealed content: %w", err)
	}
	inner.ID, inner.Name = e.ID, e.Name
	if inner.Root == inner.ID {
		inner.Root = ""
	}
	*e = *inner
	return nil
}

// expand decompresses data with the given coding; base is their content type without it. Returns
// ErrUnknownType for an unknown coding and ErrMalformed if base has a coding, too.
func (c *Codec) expand(base, coding string, data []byte) ([]byte, error) {
	if _, nested := c.codingOf(base); nested != "" {
		return nil, fmt.Errorf("%w: coding %s inside coding %s", serializer.ErrMalformed, utf.Cut(nested, 16), utf.Cut(coding, 16))
	}
	read := c.protect.reader(coding)
	if read == nil {
		return nil, fmt.Errorf("%w: no compressor is configured for the coding %s", serializer.ErrUnknownType, utf.Cut(coding, 16))
	}
	plain, err := c.protect.inflate(read, data, c.protect.MaxPlain)
	if err != nil {
		return nil, fmt.Errorf("compressed with %s: %w", coding, err)
	}
	return plain, nil
}
