package wire

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"

	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/serializer"
)

// Names of compressions in the header "compression".
const (
	compressionGzip = "application/x-gzip" // the bytes are a zlib stream
	compressionBzip = "application/x-bz2"
)

// inflate returns the decompressed body of a message with this value of the header "compression".
// Returns [serializer.ErrTooLarge] for a body of more than [serializer.DefaultMaxPlain] bytes or
// more than [serializer.DefaultMaxRatio] times the size of data. Returns
// [serializer.ErrUnknownType] for another compression, and [serializer.ErrMalformed] for bad data.
func inflate(compression string, data []byte) ([]byte, error) {
	var r io.Reader
	var err error
	switch compression {
	case compressionGzip, "application/x-deflate", "gzip", "zlib":
		if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
			r, err = gzip.NewReader(bytes.NewReader(data))
		} else {
			r, err = zlib.NewReader(bytes.NewReader(data))
		}
	case compressionBzip, "application/bzip2", "bzip2":
		r = bzip2.NewReader(bytes.NewReader(data))
	default:
		return nil, fmt.Errorf("%w: compression %q", serializer.ErrUnknownType, utf.Cut(compression, 64))
	}
	var plain []byte
	most := min(serializer.DefaultMaxPlain, len(data)*serializer.DefaultMaxRatio)
	if err == nil {
		plain, err = io.ReadAll(io.LimitReader(r, int64(most)+1))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", serializer.ErrMalformed, compression, err)
	}
	if len(plain) > most {
		return nil, fmt.Errorf("%w: %s of more than %d bytes", serializer.ErrTooLarge, compression, most)
	}
	return plain, nil
}
