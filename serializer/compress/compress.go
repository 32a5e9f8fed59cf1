// Package compress has compressors for arguments and results, for serializer.Compression. Producers
// and consumers can read all of them; they write only the configured one. It is separate from
// package serializer, so that programs that only define tasks do not link it.
//
// [Zstd] gives the smallest results, [S2] is faster, and [Gzip] is supported everywhere.
package compress

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/s2"

	"github.com/swarmiji/swarmiji/serializer"
)

// Names of the compressors of this package.
const (
	NameZstd = "zstd"
	NameS2   = "s2"
	NameGzip = "gzip"
)

// Reader decompresses data like the method Decompress of a serializer.Compressor. Safe for
// concurrent use.
type Reader func(data []byte, max int) ([]byte, error)

// Readers returns a Reader for each compressor of this package, by name. A program that only reads
// links no encoder.
func Readers() map[string]Reader {
	var z zstdReader
	return map[string]Reader{NameZstd: z.read, NameS2: readS2, NameGzip: readGzip}
}

// tooLarge returns an error that wraps serializer.ErrTooLarge and names the limit max in bytes.
func tooLarge(max int) error {
	return fmt.Errorf("%w: more than %d bytes when decompressed", serializer.ErrTooLarge, max)
}

// malformed returns an error that wraps serializer.ErrMalformed and err; name is that of the
// compressor.
func malformed(name string, err error) error {
	return fmt.Errorf("%w: %s: %w", serializer.ErrMalformed, name, err)
}

// readAll returns all bytes of r, which decompresses. Returns serializer.ErrTooLarge for more than
// max bytes, and serializer.ErrMalformed for an error of r. name is that of the compressor. The
// buffer starts with hint bytes and grows with the data read, not with a claimed size.
func readAll(name string, r io.Reader, hint, max int) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(min(hint, max))
	n, err := buf.ReadFrom(io.LimitReader(r, int64(max)+1))
	switch {
	case n > int64(max): // check the limit first: an error behind it does not matter
		return nil, tooLarge(max)
	case err != nil:
		return nil, malformed(name, err)
	}
	return buf.Bytes(), nil
}

// S2 compresses with the block format of S2, an extension of Snappy. The zero value is ready to
// use.
type S2 struct{}

// Name returns "s2".
func (S2) Name() string { return NameS2 }

// Compress implements serializer.Compressor: it returns plain as one block. Returns
// serializer.ErrTooLarge if plain exceeds the largest block.
func (S2) Compress(plain []byte) ([]byte, error) {
	if s2.MaxEncodedLen(len(plain)) < 0 {
		return nil, fmt.Errorf("%w: %d bytes", serializer.ErrTooLarge, len(plain))
	}
	return s2.Encode(nil, plain), nil
}

// Decompress implements serializer.Compressor: it returns the data of one block. It allocates the
// length that the block claims, at most max. Returns serializer.ErrTooLarge or
// serializer.ErrMalformed.
func (S2) Decompress(data []byte, max int) ([]byte, error) { return readS2(data, max) }

// readS2 is the [Reader] of S2.
func readS2(data []byte, max int) ([]byte, error) {
	n, err := s2.DecodedLen(data)
	if err != nil {
		return nil, malformed(NameS2, err)
	}
	if n > max {
		return nil, tooLarge(max)
	}
	plain, err := s2.Decode(make([]byte, n), data)
	if err != nil {
		return nil, malformed(NameS2, err)
	}
	return plain, nil
}

// Gzip compresses with gzip of the standard library. The zero value is ready to use. Share it,
// because it caches its writers, and each has tables of 800 KiB. Safe for concurrent use.
type Gzip struct{ writers sync.Pool } // of *gzip.Writer

// Name returns "gzip".
func (*Gzip) Name() string { return NameGzip }

// Compress implements serializer.Compressor: it returns plain compressed at the default level.
func (g *Gzip) Compress(plain []byte) ([]byte, error) {
	var buf bytes.Buffer
	w, ok := g.writers.Get().(*gzip.Writer)
	if ok {
		w.Reset(&buf)
	} else {
		w = gzip.NewWriter(&buf)
	}
	_, err := w.Write(plain)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	w.Reset(io.Discard) // releases buf
	g.writers.Put(w)
	return buf.Bytes(), nil
}

// Decompress implements serializer.Compressor: it returns the data of a gzip stream. Returns
// serializer.ErrTooLarge or serializer.ErrMalformed.
func (*Gzip) Decompress(data []byte, max int) ([]byte, error) { return readGzip(data, max) }

// readGzip is the [Reader] of gzip.
func readGzip(data []byte, max int) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, malformed(NameGzip, err)
	}
	return readAll(NameGzip, r, 4*len(data), max)
}
