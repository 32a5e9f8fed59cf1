// Package compress holds ways to write arguments and results shorter, for serializer.Compression. Producers and consumers read
// all of them by default; they write those that are configured. It is apart from package serializer so that programs which only
// define tasks link none of it.
//
// [Zstd] makes the smaller results, [S2] is faster, [Gzip] is what everybody understands.
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

// The names of the compressors of this package.
const (
	NameZstd = "zstd"
	NameS2   = "s2"
	NameGzip = "gzip"
)

func tooLarge(max int) error {
	return fmt.Errorf("%w: more than %d bytes when decompressed", serializer.ErrTooLarge, max)
}

func malformed(name string, err error) error {
	return fmt.Errorf("%w: %s: %w", serializer.ErrMalformed, name, err)
}

// readAll reads at most max bytes. The result grows with what was read, never with what was promised.
func readAll(name string, r io.Reader, hint, max int) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(min(hint, max))
	n, err := buf.ReadFrom(io.LimitReader(r, int64(max)+1))
	switch {
	case n > int64(max): // before the error: what lies behind the limit is nobody's business
		return nil, tooLarge(max)
	case err != nil:
		return nil, malformed(name, err)
	}
	return buf.Bytes(), nil
}

// S2 compresses with the block form of S2, an extension of Snappy. The zero value is ready.
type S2 struct{}

// Name returns "s2".
func (S2) Name() string { return NameS2 }

// Compress implements serializer.Compressor.
func (S2) Compress(plain []byte) ([]byte, error) {
	if s2.MaxEncodedLen(len(plain)) < 0 {
		return nil, fmt.Errorf("%w: %d bytes", serializer.ErrTooLarge, len(plain))
	}
	return s2.Encode(nil, plain), nil
}

// Decompress implements serializer.Compressor. A block says how long it becomes; this is believed up to max, which is
// what it takes in memory then.
func (S2) Decompress(data []byte, max int) ([]byte, error) {
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

// Gzip compresses with gzip of the standard library. The zero value is ready; share it, since it keeps its writers, each of
// which has tables of 800 KiB, for later use.
type Gzip struct{ writers sync.Pool } // of *gzip.Writer

// Name returns "gzip".
func (*Gzip) Name() string { return NameGzip }

// Compress implements serializer.Compressor.
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
	w.Reset(io.Discard) // lets go of buf
	g.writers.Put(w)
	return buf.Bytes(), nil
}

// Decompress implements serializer.Compressor.
func (*Gzip) Decompress(data []byte, max int) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, malformed(NameGzip, err)
	}
	return readAll(NameGzip, r, 4*len(data), max)
}
