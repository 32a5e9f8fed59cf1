package compress

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxWindow limits how far back a frame may refer, in bytes. A reader needs this much memory
// besides the result. The authors of the format ask every reader to support it.
const maxWindow = 8 << 20

// Zstd compresses with Zstandard. Make one with [NewZstd] and share it, because it caches encoders
// and decoders. It starts no goroutines and needs no Close. Safe for concurrent use.
type Zstd struct {
	encoder *zstd.Encoder
	reader  zstdReader
}

// NewZstd returns a compressor with the default compression level.
func NewZstd() (*Zstd, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, fmt.Errorf("compress: zstd: %w", err)
	}
	return &Zstd{encoder: encoder}, nil
}

// Name returns "zstd".
func (*Zstd) Name() string { return NameZstd }

// Compress implements serializer.Compressor: it returns plain as one frame. It does not fail.
func (z *Zstd) Compress(plain []byte) ([]byte, error) {
	return z.encoder.EncodeAll(plain, make([]byte, 0, len(plain)/2+64)), nil
}

// Decompress implements serializer.Compressor: it returns the data of a frame. It refuses frames
// that refer back more than 8 MiB. Returns serializer.ErrTooLarge or serializer.ErrMalformed.
func (z *Zstd) Decompress(data []byte, max int) ([]byte, error) { return z.reader.read(data, max) }

// zstdReader decompresses Zstandard. The zero value is ready to use. Safe for concurrent use.
type zstdReader struct{ decoders sync.Pool } // of *zstd.Decoder

// read is the [Reader] of Zstandard. It refuses frames that refer back more than 8 MiB.
func (z *zstdReader) read(data []byte, max int) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(data); err != nil {
		return nil, malformed(NameZstd, err)
	}
	hint := 4 * len(data)
	if h.HasFCS {
		if h.FrameContentSize > uint64(max) {
			return nil, tooLarge(max)
		}
		hint = min(int(h.FrameContentSize)+bytes.MinRead, 64*len(data)+bytes.MinRead)
	}
	d, ok := z.decoders.Get().(*zstd.Decoder)
	if !ok {
		var err error // concurrency 1 decodes in the caller's goroutine
		if d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow)); err != nil {
			return nil, fmt.Errorf("compress: zstd: %w", err)
		}
	}
	if err := d.Reset(bytes.NewReader(data)); err != nil {
		return nil, malformed(NameZstd, err)
	}
	plain, err := readAll(NameZstd, d, hint, max)
	if d.Reset(nil) == nil { // releases data
		z.decoders.Put(d)
	}
	return plain, err
}
